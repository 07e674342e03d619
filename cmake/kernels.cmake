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

# Kernels are optimized at every build type: a debug run stays usable. -O1 compiles in 40 % of the time of
# -O3, and with a sanitizer's checks in a fifth.
# A fuzzer is for parsers: its kernels have no checks, with which clang takes ten minutes for some.
if(BY_FUZZ)
  set(optimization -O1 -fno-sanitize=all)
elseif(BY_SANITIZE)
  set(optimization -O1)
else()
  set(optimization -O3)
endif()
set(BY_KERNEL_OPTIMIZATION ${optimization} CACHE STRING "How kernels are optimized")

# So are the references: the tests of kernels spend most of their time in them.
if(NOT BY_SANITIZE)
  file(GLOB reference_sources CONFIGURE_DEPENDS src/device/cpu/reference_*.c)
  set_source_files_properties(${reference_sources} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Debug>:-O2>)
endif()

add_subdirectory(src/device/cpu/kernels)
