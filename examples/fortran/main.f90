! A main loop in Fortran: a small GPT learns to count.
program main
  use counting
  implicit none
  character(kind=c_char, len=*), parameter :: json = '{ "train_micro_batch_size_per_gpu": 8, "optimizer": { ' // &
      '"type": "AdamW", "params": { "lr": 0.005 } } }' // c_null_char
  character(kind=c_char, len=len(json)), target :: config_text = json
  type(shoal_gpt_config) :: config
  type(shoal_engine_args) :: args
  type(shoal_step_info) :: info
  type(c_ptr) :: group, model, engine
  integer :: step

  call check(shoal_comm_init(c_null_ptr, 0_c_size_t, group))
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
  if (.not. info%loss < 1) error stop 1 ! guessing gives ln 64 = 4.2
end program
