! A program of MPI in Fortran that trains: its ranks are Shoal's. A communicator is an integer here, and that is what the
! C function wants; with `use mpi_f08` it is the communicator's MPI_VAL.
!     mpif90 ../fortran/shoal.f90 main.f90 -lshoal && mpirun -n 2 ./a.out
program main
  use counting
  use mpi
  implicit none
  character(kind=c_char, len=*), parameter :: json = '{ "train_micro_batch_size_per_gpu": 8, "optimizer": { ' // &
      '"type": "AdamW", "params": { "lr": 0.005 } } }' // c_null_char
  character(kind=c_char, len=len(json)), target :: config_text = json
  type(shoal_gpt_config) :: config
  type(shoal_engine_args) :: args
  type(shoal_step_info) :: info
  type(c_ptr) :: group, model, engine
  real(c_double) :: largest
  integer :: step, level, code

  call MPI_Init_thread(MPI_THREAD_SERIALIZED, level, code)
  call check(shoal_comm_from_mpi_handle(int(MPI_COMM_WORLD, c_int32_t), group))
  call shoal_gpt_config_defaults(config, c_sizeof(config))
  config%num_layers = 1
  config%hidden_size = 32
  config%num_attention_heads = 2
  config%seq_length = length
  config%vocab_size = kinds
  config%attention_dropout = 0
  config%hidden_dropout = 0
  call check(shoal_gpt_create(config, c_sizeof(config), model))
  args%model = model
  args%config_text = c_loc(config_text)
  args%group = group
  call check(shoal_engine_create(args, c_sizeof(args), engine))
  do step = 1, 60
    call check(shoal_engine_train_batch(engine, c_funloc(fill), c_null_ptr, info, c_sizeof(info)))
    if (modulo(step, 20) == 0 .and. shoal_engine_rank(engine) == 0) print '(a, i0, a, f0.4)', 'step ', step, '  loss ', info%loss
  end do
  call shoal_engine_destroy(engine)
  call shoal_model_destroy(model)
  call shoal_comm_destroy(group)
  call MPI_Allreduce(info%loss, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, code) ! the program's own
  call MPI_Finalize(code)
  if (.not. largest < 1) error stop 1 ! guessing gives ln 64 = 4.2
end program
