# The emulator of GPUs, by_cuda_emulator: kernels of src/device/cuda/kernels, compiled twice as C++ by clang, with and
# without what tells it of each access. A target that links it has BY_HAS_EMULATOR. Where there is no clang++, or the
# processor is another, or sanitizers check the whole, there is none: the tests that need it say so.
find_program(BY_CLANGXX NAMES clang++-14 clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15)
if(BY_CLANGXX AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT BY_SANITIZE)
  file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels/*.cu
       ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
  if(BY_WERROR AND BY_CLANGXX MATCHES "14$") # others warn of other things
    set(kernel_errors -Werror)
  endif()
  set(flags_plain -O2 -DBY_EMULATED=emulated_plain_)
  set(flags_checked -O1 -fno-vectorize -fno-slp-vectorize -fsanitize=thread -mllvm
                    -tsan-instrument-func-entry-exit=0 -DBY_EMULATED=emulated_checked_)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/emulated) # generators other than Ninja make none
  foreach(source ${kernel_sources})
    get_filename_component(name ${source} NAME_WE)
    foreach(build plain checked)
      set(object ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}_${build}.o)
      add_custom_command(
        OUTPUT ${object}
        COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${BY_CLANGXX} -x c++ -std=c++17 -g -fPIC -fno-exceptions -fno-rtti
                -fno-math-errno -fno-strict-aliasing -ffp-contract=off -Wall -Wextra ${kernel_errors} -Wno-unused-function -Wno-pass-failed ${flags_${build}}
                -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/src/device/cuda/kernels
                -I${CMAKE_CURRENT_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
        DEPENDS ${source} DEPFILE ${object}.d)
      list(APPEND emulated_objects ${object})
    endforeach()
  endforeach()
  add_library(by_cuda_emulator STATIC cuda/emulator_threads.c cuda/emulator_memory.c cuda/emulator_kernels.c
                                      ${emulated_objects})
  target_include_directories(by_cuda_emulator PUBLIC ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(by_cuda_emulator PRIVATE $<$<CONFIG:Debug,Release>:-O2>)
  target_compile_definitions(by_cuda_emulator INTERFACE BY_HAS_EMULATOR)
else()
  add_library(by_cuda_emulator INTERFACE)
endif()
