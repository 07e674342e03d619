# Own CPU kernels: each source in src/device/cpu/kernels is compiled once per instruction-set level;
# BY_ISA names the level and is the suffix of every symbol. Level selection happens at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(kernel_levels baseline avx2 avx512)
  set(kernel_flags_baseline "")
  set(kernel_flags_avx2 -march=x86-64-v3 -mprfchw)
  set(kernel_flags_avx512 -march=x86-64-v4 -mprfchw -mavx512bf16 -mavx512vnni -mprefer-vector-width=512)
else()
  set(kernel_levels baseline)
  set(kernel_flags_baseline "")
endif()

# Levels that the program has. `native` leaves out what the processor that compiles it cannot run: a third of the
# compiler's work on one without AVX-512; `baseline` is a slow program that compiles fast. The commands of all levels are
# in compile_commands.json all the same, for clang-tidy.
set(BY_KERNEL_LEVELS all CACHE STRING "Levels of the kernels: all; native, those that this machine runs; or baseline")
execute_process(COMMAND ${CMAKE_C_COMPILER} -march=native -dM -E -x c /dev/null
                OUTPUT_VARIABLE native ERROR_QUIET)
if(BY_KERNEL_LEVELS STREQUAL "baseline")
  set(highest_level baseline)
elseif(native MATCHES "__AVX512BF16__ 1" AND native MATCHES "__AVX512VNNI__ 1")
  set(highest_level avx512)
elseif(native MATCHES "__AVX2__ 1" AND native MATCHES "__FMA__ 1" AND native MATCHES "__BMI2__ 1")
  set(highest_level avx2)
else()
  set(highest_level baseline)
endif()
set(linked_levels ${kernel_levels})
if(BY_KERNEL_LEVELS MATCHES "^(native|baseline)$")
  list(FIND kernel_levels ${highest_level} last)
  math(EXPR count "${last} + 1")
  list(SUBLIST kernel_levels 0 ${count} linked_levels)
elseif(NOT BY_KERNEL_LEVELS STREQUAL "all")
  message(FATAL_ERROR "BY_KERNEL_LEVELS is ${BY_KERNEL_LEVELS}; one of all, native, baseline")
endif()
foreach(level ${linked_levels})
  string(TOUPPER BY_HAS_${level} has)
  add_compile_definitions(${has})
endforeach()

# Kernels are optimized at every build type: a debug run stays usable.
set(BY_KERNEL_OPTIMIZATION -O3 CACHE STRING "How kernels are optimized")

# A sanitizer checks the kernels of the highest level that this machine runs: with checks, kernels are most of
# what a build compiles. The other levels have none. A fuzzer is for parsers: none of its kernels is checked.
set(sanitized_level "")
if(BY_SANITIZE)
  set(sanitizer_flags -fsanitize=${BY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # AddressSanitizer finds most of what these would, and they are a third of what compiling kernels with checks takes.
  # Fuzzers, which meet the odd inputs, keep them.
  if(BY_SANITIZE MATCHES "undefined" AND NOT BY_FUZZ)
    list(APPEND sanitizer_flags -fno-sanitize=null,object-size,pointer-overflow)
  endif()
  if(NOT BY_FUZZ)
    set(sanitized_level ${highest_level})
  endif()
endif()

# So are the references: the tests of kernels spend most of their time in them.
if(NOT BY_SANITIZE)
  file(GLOB reference_sources CONFIGURE_DEPENDS src/device/cpu/reference/*.c)
  set_source_files_properties(${reference_sources} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Debug>:-O2>)
endif()

add_subdirectory(src/device/cpu/kernels)
