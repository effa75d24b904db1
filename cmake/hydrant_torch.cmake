# SPDX-License-Identifier: Apache-2.0
# libtorch, for training alone: Debian's libtorch-dev, or one of PyTorch's own packages by CMAKE_PREFIX_PATH (for instance
# .../site-packages/torch). TorchConfig.cmake is left alone: with CUDA it wants a toolkit of just its own version, and it
# adds flags to everything.
set(HYDRANT_TRAIN "AUTO" CACHE STRING "Build 'hydrant train': AUTO (where libtorch is found), ON or OFF")
set(HYDRANT_HAS_TORCH FALSE)
if(HYDRANT_TRAIN STREQUAL "OFF")
  return()
endif()
find_path(HYDRANT_TORCH_INCLUDE ATen/ATen.h)
find_library(HYDRANT_TORCH_LIBRARY torch)
find_library(HYDRANT_TORCH_CPU_LIBRARY torch_cpu)
find_library(HYDRANT_C10_LIBRARY c10)
if(HYDRANT_TORCH_INCLUDE AND HYDRANT_TORCH_LIBRARY AND HYDRANT_TORCH_CPU_LIBRARY AND HYDRANT_C10_LIBRARY)
  set(HYDRANT_HAS_TORCH TRUE)
  add_library(hydrant_libtorch INTERFACE)
  target_include_directories(hydrant_libtorch SYSTEM INTERFACE ${HYDRANT_TORCH_INCLUDE})
  # at::parallel_for is code of its headers, and one thread without OpenMP.
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(hydrant_libtorch INTERFACE
    ${HYDRANT_TORCH_CPU_LIBRARY} ${HYDRANT_TORCH_LIBRARY} ${HYDRANT_C10_LIBRARY} OpenMP::OpenMP_CXX)
  message(STATUS "libtorch: ${HYDRANT_TORCH_CPU_LIBRARY}")
  # Debian's libtorch uses Debian's protobuf; see the next comment. Others have theirs inside.
  find_library(HYDRANT_PROTOBUF_LIBRARY protobuf)
elseif(HYDRANT_TRAIN STREQUAL "ON")
  message(FATAL_ERROR "HYDRANT_TRAIN is ON, but libtorch is not found: install libtorch-dev, or name the folder 'torch' of a "
    "Python package by CMAKE_PREFIX_PATH")
else()
  message(STATUS "libtorch is not found: 'hydrant train' is left out")
endif()

# hydrant_before_others(<target>): Debian's libsentencepiece contains an older protobuf and exports its names. A program
# that links both crashes in libprotobuf before main(), unless libprotobuf's own names come first.
function(hydrant_before_others target)
  if(HYDRANT_PROTOBUF_LIBRARY)
    target_link_options(${target} PRIVATE -Wl,--push-state,--no-as-needed ${HYDRANT_PROTOBUF_LIBRARY} -Wl,--pop-state)
  endif()
endfunction()
