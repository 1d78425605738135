! A small GPT learns to count: Shoal finds its ranks itself, alone or under `shoal run`.
!     gfortran shoal.f90 main.f90 -lshoal && ./a.out
program main
  use counting
  implicit none
  type(c_ptr) :: group
  real(c_double) :: loss

  call check(shoal_comm_init(c_null_ptr, group))
  call train(group, loss)
  call shoal_comm_destroy(group)
  if (.not. loss < 1) error stop 1 ! guessing gives ln 64 = 4.2
end program
