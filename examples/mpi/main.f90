! A program of MPI in Fortran that trains: its ranks are Shoal's. A communicator is an integer here, and that is what the
! C function wants; with `use mpi_f08` it is the communicator's MPI_VAL.
!     mpif90 ../fortran/shoal.f90 main.f90 -lshoal && mpirun -n 2 ./a.out
program main
  use counting
  use mpi
  implicit none
  type(c_ptr) :: group
  real(c_double) :: loss, largest
  integer :: level, code

  call MPI_Init_thread(MPI_THREAD_SERIALIZED, level, code)
  call check(shoal_comm_from_mpi_handle(int(MPI_COMM_WORLD, c_int32_t), group))
  call train(group, loss)
  call shoal_comm_destroy(group)
  call MPI_Allreduce(loss, largest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, code) ! the program's own
  call MPI_Finalize(code)
  if (.not. largest < 1) error stop 1 ! guessing gives ln 64 = 4.2
end program
