# The kernels for GPUs inside the library: their sources always, and where NVRTC is found their machine code, made by
# cmake/cubin.c for each family (file of kernels) and architecture. Nothing else of CUDA is needed. BY_CUDA_IMAGES says
# whether: `auto` with the NVRTC of scripts/nvrtc-env, whose code every driver from 525 on accepts; `on` with that of
# /usr/local/cuda, too, whose code may need a newer one; `off`: the program compiles sources when it first uses a GPU.
set(BY_CUDA_IMAGES auto CACHE STRING "Machine code of the kernels for GPUs: auto (with scripts/nvrtc-env), on or off")
# Code for 8.0 runs on 8.6, too, that for 10.0 on 10.3. The drivers of later GPUs compile PTX (compute_90).
set(cuda_architectures sm_80 sm_89 sm_90a sm_100 sm_120 compute_90)
set(cuda_folder ${PROJECT_SOURCE_DIR}/src/device/cuda)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${cuda_folder}/kernels/*.cu)
set(cuda_headers prelude.cuh=${cuda_folder}/kernels/prelude.cuh functions.cuh=${cuda_folder}/kernels/functions.cuh
                 keys.cuh=${cuda_folder}/kernels/keys.cuh tile.cuh=${cuda_folder}/kernels/tile.cuh device/cuda/kernels.h=${cuda_folder}/kernels.h
                 device/cuda/layer_kernels.h=${cuda_folder}/layer_kernels.h)
set(cuda_header_files "")
foreach(header ${cuda_headers})
  string(REGEX REPLACE ".*=" "" file ${header})
  list(APPEND cuda_header_files ${file})
endforeach()

file(GLOB nvrtc_folders ${PROJECT_SOURCE_DIR}/build/venv-nvrtc/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib)
if(BY_CUDA_IMAGES STREQUAL "on")
  list(APPEND nvrtc_folders /usr/local/cuda/lib64)
endif()
if(NOT BY_CUDA_IMAGES MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "BY_CUDA_IMAGES is ${BY_CUDA_IMAGES}; one of auto, on, off")
elseif(NOT BY_CUDA_IMAGES STREQUAL "off" AND NOT BY_SANITIZE)
  find_file(BY_NVRTC NAMES libnvrtc.so.12 libnvrtc.so.13 PATHS ${nvrtc_folders} NO_DEFAULT_PATH)
  if(BY_CUDA_IMAGES STREQUAL "on" AND NOT BY_NVRTC)
    message(FATAL_ERROR "BY_CUDA_IMAGES is on, but there is no NVRTC: run scripts/nvrtc-env, or set BY_NVRTC")
  endif()
endif()
set(cuda_images "")
set(cuda_image_files ${cuda_sources} ${cuda_header_files})
if(BY_NVRTC AND NOT BY_CUDA_IMAGES STREQUAL "off" AND NOT BY_SANITIZE)
  add_executable(cubin cmake/cubin.c)
  target_link_libraries(cubin PRIVATE ${CMAKE_DL_LIBS})
  if(with_ZSTD)
    target_compile_definitions(cubin PRIVATE BY_ZSTD)
    target_link_libraries(cubin PRIVATE PkgConfig::libzstd)
  endif()
  foreach(source ${cuda_sources})
    get_filename_component(family ${source} NAME_WE)
    foreach(architecture ${cuda_architectures})
      set(image ${CMAKE_BINARY_DIR}/generated/cuda/${family}_${architecture})
      add_custom_command(OUTPUT ${image} DEPENDS cubin ${source} ${cuda_header_files}
                         COMMAND cubin ${BY_NVRTC} ${architecture} ${image} ${cuda_headers} ${family}.cu=${source})
      list(APPEND cuda_images ${image})
      list(APPEND cuda_image_files ${image})
    endforeach()
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated/cuda)
endif()
string(REPLACE ";" "," listed_sources "${cuda_sources}")
string(REPLACE ";" "," listed_headers "${cuda_headers}")
string(REPLACE ";" "," listed_images "${cuda_images}")
set(cuda_table ${CMAKE_BINARY_DIR}/generated/cuda_images.c)
add_custom_command(OUTPUT ${cuda_table} DEPENDS ${cuda_image_files} cmake/write_cuda_images.cmake
                   COMMAND ${CMAKE_COMMAND} -DOUT=${cuda_table} -DSOURCES=${listed_sources}
                           -DHEADERS=${listed_headers} -DIMAGES=${listed_images} -DCOMPRESSED=${with_ZSTD}
                           -P ${PROJECT_SOURCE_DIR}/cmake/write_cuda_images.cmake)
