# Kernels for NVIDIA's GPUs. Where nvcc is, it compiles them into one image, which the library contains. The accelerator
# itself needs nothing of NVIDIA's: without an image it says that the program was built without nvcc.
#   SHOAL_NVCC              the compiler, or nothing
#   SHOAL_CUDA_IMAGE        the image
#   SHOAL_CUDA_DEFINITIONS  for the file that contains it

set(SHOAL_WITH_CUDA AUTO CACHE STRING "kernels for GPUs through nvcc: AUTO, ON or OFF")
set(SHOAL_CUDA_DEFINITIONS "")
set(SHOAL_NVCC "")
if(SHOAL_WITH_CUDA STREQUAL "AUTO" OR SHOAL_WITH_CUDA)
  find_program(SHOAL_NVCC_PROGRAM nvcc HINTS /usr/local/cuda/bin)
  if(SHOAL_NVCC_PROGRAM)
    set(SHOAL_NVCC ${SHOAL_NVCC_PROGRAM})
  elseif(NOT SHOAL_WITH_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "SHOAL_WITH_CUDA=ON: there is no nvcc in PATH: install CUDA's compiler, or give -DSHOAL_NVCC_PROGRAM=FILE")
  endif()
endif()
# Code for GPUs of capability 8.0 and 9.0, and PTX, which drivers compile for later ones. Rounding as on the CPU.
set(SHOAL_NVCC_FLAGS -fmad=false -prec-div=true -prec-sqrt=true -ftz=false -std=c++17 -I${CMAKE_SOURCE_DIR}/src
    -I${CMAKE_SOURCE_DIR}/include -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
    -gencode arch=compute_80,code=compute_80)
# shoal_cuda_image(OUTPUT SOURCE): a file of kernels, with all that it includes, becomes an image.
function(shoal_cuda_image output source)
  add_custom_command(OUTPUT ${output} DEPENDS ${source} DEPFILE ${output}.d
                     COMMAND ${SHOAL_NVCC} ${SHOAL_NVCC_FLAGS} -fatbin -Xfatbin=-compress-all -MD -MF ${output}.d -MT ${output} -o ${output} ${source} VERBATIM)
endfunction()
if(SHOAL_NVCC)
  set(SHOAL_CUDA_IMAGE ${CMAKE_BINARY_DIR}/kernels.fatbin)
  list(APPEND SHOAL_CUDA_DEFINITIONS "SHOALI_CUDA_IMAGE=\"${SHOAL_CUDA_IMAGE}\"")
endif()
# The driver of tests without a GPU (tests/emulator).
set(SHOAL_CUDA_EMULATOR ${CMAKE_BINARY_DIR}/tests/libcuda_emulator.so)
set(SHOAL_CUDA_CHECKED ${CMAKE_BINARY_DIR}/tests/libcuda_emulator_checked.so)
