# The libraries that carry the commodity. All come from Debian packages; scripts/setup installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(NETTLE REQUIRED IMPORTED_TARGET nettle)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(HIREDIS REQUIRED IMPORTED_TARGET hiredis)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)

# oneDNN only gives a second opinion on the machine's peaks: src/plan/onednn.c knows it by its headers and
# loads it at run time, when it is there. Not under sanitizers: the leak checker dies in the thread-local
# storage of a library that was loaded after the threads began.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
if(DNNL_INCLUDE AND NOT BY_SANITIZE)
  set_source_files_properties(src/plan/onednn.c PROPERTIES COMPILE_DEFINITIONS BY_ONEDNN
                              INCLUDE_DIRECTORIES ${DNNL_INCLUDE})
endif()

set(library_dependencies PkgConfig::YAML PkgConfig::JANSSON PkgConfig::XXHASH PkgConfig::NETTLE
                         PkgConfig::SQLITE PkgConfig::CAIRO PkgConfig::ZLIB PkgConfig::CURL PkgConfig::UV
                         PkgConfig::HIREDIS PkgConfig::SECCOMP PkgConfig::JPEG PkgConfig::PNG
                         Threads::Threads
                         ${CMAKE_DL_LIBS} m)

# Codecs of Parquet pages; without one, files that have it are refused by name.
pkg_check_modules(SNAPPY IMPORTED_TARGET snappy)
pkg_check_modules(ZSTD IMPORTED_TARGET libzstd)
set(codecs "")
foreach(codec SNAPPY ZSTD)
  if(${codec}_FOUND)
    list(APPEND library_dependencies PkgConfig::${codec})
    list(APPEND codecs BY_${codec})
  endif()
endforeach()
set_source_files_properties(src/formats/parquet_codec.c PROPERTIES COMPILE_DEFINITIONS "${codecs}")

# OpenMP is the one thread pool of the kernels, as it is oneDNN's. Debian's oneDNN links GNU's runtime;
# clang's own runtime answers the same symbols, so either compiler ends with one pool.
find_package(OpenMP REQUIRED COMPONENTS C)
list(APPEND library_dependencies OpenMP::OpenMP_C)

# MPI carries ranks of several processes. src/comm/comm_mpi.c alone knows it, and calls it only in a process
# that a launcher of MPI started.
set(BY_MPI AUTO CACHE STRING "Ranks over MPI: AUTO (when it is found), ON or OFF")
set_property(CACHE BY_MPI PROPERTY STRINGS AUTO ON OFF)
if(NOT BY_MPI STREQUAL "OFF")
  pkg_check_modules(OMPI IMPORTED_TARGET ompi-c)
  if(OMPI_FOUND)
    set(mpi_target PkgConfig::OMPI)
  else()
    find_package(MPI COMPONENTS C)
    if(MPI_C_FOUND)
      set(mpi_target MPI::MPI_C)
    elseif(BY_MPI STREQUAL "ON")
      message(FATAL_ERROR "BY_MPI is ON, but there is no MPI: install libopenmpi-dev openmpi-bin")
    endif()
  endif()
endif()
if(mpi_target)
  list(APPEND library_dependencies ${mpi_target})
  set_source_files_properties(src/comm/comm_mpi.c PROPERTIES COMPILE_DEFINITIONS BY_MPI)
endif()
