! What the examples in Fortran need of Shoal, the data they learn (to count), and their main loop: a program brings a
! group of ranks, and has its loss back.
!
! The types repeat the C structs of the headers member by member; tests/cli/fortran_test.sh compares them.
module shoal
  use, intrinsic :: iso_c_binding
  implicit none

  type, bind(C) :: shoal_gpt_config
    integer(c_int64_t) :: num_layers, hidden_size, num_attention_heads, seq_length, max_position_embeddings, &
                          ffn_hidden_size, vocab_size, make_vocab_size_divisible_by
    real(c_double) :: attention_dropout, hidden_dropout, init_method_std, norm_epsilon
    logical(c_bool) :: add_bias_linear, openai_gelu, untie_embeddings, cross_entropy_loss_fusion
    real(c_double) :: label_smoothing
    logical(c_bool) :: relu, scale_attn_by_inverse_layer_idx
  end type

  type, bind(C) :: shoal_engine_args
    type(c_ptr) :: model = c_null_ptr, config_path = c_null_ptr, config_text = c_null_ptr, group = c_null_ptr, &
                   mesh = c_null_ptr
    integer(c_int64_t) :: seed = 0
    integer(c_int32_t) :: threads = 0
    type(c_ptr) :: accelerator = c_null_ptr, ops = c_null_ptr, recompute_granularity = c_null_ptr, &
                   recompute_method = c_null_ptr
    integer(c_int64_t) :: recompute_num_layers = 0
    type(c_ptr) :: recompute_modules = c_null_ptr
    logical(c_bool) :: inference = .false.
    type(c_ptr) :: output_path = c_null_ptr
    logical(c_bool) :: saves = .false., override_existing_checkpoint = .false., blank_weights = .false., &
                       sequence_parallel = .false., no_async_tensor_parallel = .false.
    type(c_ptr) :: pipeline_schedule = c_null_ptr
    integer(c_int32_t) :: virtual_stages = 0, micro_batch_group = 0
    type(c_ptr) :: partition_method = c_null_ptr
    integer(c_int32_t) :: first_stage_layers = 0, last_stage_layers = 0
    logical(c_bool) :: account_for_embedding = .false., account_for_loss = .false., no_overlap_p2p = .false.
  end type

  type, bind(C) :: shoal_step_info
    integer(c_int64_t) :: step, skipped_steps
    real(c_double) :: loss, grad_norm, lr, loss_scale
    logical(c_bool) :: applied
    real(c_double) :: step_ms, forward_ms, backward_ms, reduce_ms, update_ms
    integer(c_int64_t) :: train_batch_size, consumed_samples
  end type

  type, bind(C) :: shoal_batch
    type(c_ptr) :: data
    integer(c_int64_t) :: samples
  end type

  interface
    integer(c_int) function shoal_comm_init(args, group) bind(C)
      import
      type(c_ptr), value :: args ! null: all defaults
      type(c_ptr) :: group
    end function
    integer(c_int) function shoal_comm_from_mpi_handle(communicator, group) bind(C)
      import
      integer(c_int32_t), value :: communicator
      type(c_ptr) :: group
    end function
    subroutine shoal_gpt_config_defaults(config) bind(C)
      import
      type(shoal_gpt_config) :: config
    end subroutine
    integer(c_int) function shoal_gpt_create(config, model) bind(C)
      import
      type(shoal_gpt_config) :: config
      type(c_ptr) :: model
    end function
    integer(c_int) function shoal_engine_create(args, engine) bind(C)
      import
      type(shoal_engine_args) :: args
      type(c_ptr) :: engine
    end function
    integer(c_int) function shoal_engine_train_batch(engine, source, user, info) bind(C)
      import
      type(c_ptr), value :: engine, user
      type(c_funptr), value :: source
      type(shoal_step_info) :: info
    end function
    integer(c_int32_t) function shoal_engine_rank(engine) bind(C)
      import
      type(c_ptr), value :: engine
    end function
    subroutine shoal_engine_destroy(engine) bind(C)
      import
      type(c_ptr), value :: engine
    end subroutine
    subroutine shoal_model_destroy(model) bind(C)
      import
      type(c_ptr), value :: model
    end subroutine
    subroutine shoal_comm_destroy(group) bind(C)
      import
      type(c_ptr), value :: group
    end subroutine
    type(c_ptr) function shoal_error_message() bind(C)
      import
    end function
    integer(c_size_t) function strlen(text) bind(C)
      import
      type(c_ptr), value :: text
    end function
  end interface
end module

module counting
  use shoal
  implicit none
  integer, parameter :: samples = 8, length = 16, kinds = 64
  integer(c_int32_t), target :: tokens(length, samples), targets(length, samples)
contains
  ! A function of (step, micro-batch) alone: any number of ranks sees the same.
  integer(c_int) function fill(user, step, micro, batch) bind(C)
    type(c_ptr), value :: user
    integer(c_int64_t), value :: step, micro
    type(shoal_batch) :: batch
    type(c_ptr), pointer :: arrays(:)
    integer :: i, j
    do j = 1, samples
      do i = 1, length
        tokens(i, j) = int(modulo(i + 5 * j + 11 * step + 3 * micro, int(kinds, c_int64_t)), c_int32_t)
        targets(i, j) = modulo(tokens(i, j) + 1, kinds)
      end do
    end do
    call c_f_pointer(batch%data, arrays, [2])
    arrays(1) = c_loc(tokens)
    arrays(2) = c_loc(targets)
    fill = 0
    if (c_associated(user)) fill = 0 ! not needed here
  end function

  ! A small GPT on the ranks of `group`, 60 steps.
  subroutine train(group, loss)
    type(c_ptr), intent(in) :: group
    real(c_double), intent(out) :: loss
    character(kind=c_char, len=*), parameter :: json = '{ "train_micro_batch_size_per_gpu": 8, "optimizer": { ' // &
        '"type": "AdamW", "params": { "lr": 0.005 } } }' // c_null_char
    character(kind=c_char, len=len(json)), target, save :: config_text = json
    type(shoal_gpt_config) :: config
    type(shoal_engine_args) :: args
    type(shoal_step_info) :: info
    type(c_ptr) :: model, engine
    integer :: step, rank

    call shoal_gpt_config_defaults(config)
    config%num_layers = 1
    config%hidden_size = 32
    config%num_attention_heads = 2
    config%seq_length = length
    config%vocab_size = kinds
    config%attention_dropout = 0
    config%hidden_dropout = 0
    call check(shoal_gpt_create(config, model))
    args%model = model
    args%config_text = c_loc(config_text)
    args%group = group
    call check(shoal_engine_create(args, engine))
    rank = shoal_engine_rank(engine)
    do step = 1, 60
      call check(shoal_engine_train_batch(engine, c_funloc(fill), c_null_ptr, info))
      if (modulo(step, 20) == 0 .and. rank == 0) print '(a, i0, a, f0.4)', 'step ', step, '  loss ', info%loss
    end do
    loss = info%loss
    call shoal_engine_destroy(engine)
    call shoal_model_destroy(model)
  end subroutine

  subroutine check(status)
    integer(c_int), intent(in) :: status
    character(kind=c_char), pointer :: text(:)
    type(c_ptr) :: message
    if (status >= 0) return
    message = shoal_error_message()
    call c_f_pointer(message, text, [strlen(message)])
    write (0, *) text
    error stop 1
  end subroutine
end module
