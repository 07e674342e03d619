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

# oneDNN only gives a second opinion on the machine's peaks: src/plan/onednn.c knows it by its headers and
# loads it at run time, when it is there. Not under sanitizers: the leak checker dies in the thread-local
# storage of a library that was loaded after the threads began.
find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h)
if(DNNL_INCLUDE AND NOT BY_SANITIZE)
  set_source_files_properties(src/plan/onednn.c PROPERTIES COMPILE_DEFINITIONS BY_ONEDNN
                              INCLUDE_DIRECTORIES ${DNNL_INCLUDE})
endif()

set(library_dependencies PkgConfig::YAML PkgConfig::JANSSON PkgConfig::XXHASH PkgConfig::NETTLE
                         PkgConfig::SQLITE PkgConfig::CAIRO PkgConfig::ZLIB Threads::Threads
                         ${CMAKE_DL_LIBS} m)

# OpenMP is the one thread pool of the kernels, as it is oneDNN's. Debian's oneDNN links GNU's runtime;
# clang's own runtime answers the same symbols, so either compiler ends with one pool.
find_package(OpenMP REQUIRED COMPONENTS C)
list(APPEND library_dependencies OpenMP::OpenMP_C)
