# The stand-ins of NVIDIA's libraries (tests/cuda/standin.h), each in folders that tests name in BANYAN_CUDA_PATH:
# all of them, or only what such a machine would have. They need the emulator; without it tests say so.
set(standins ${CMAKE_CURRENT_BINARY_DIR}/standins)
get_target_property(emulator_kind by_cuda_emulator TYPE)
if(emulator_kind STREQUAL "STATIC_LIBRARY")
  # standin(NAME FOLDER FILE SOURCES...)
  function(standin name folder file)
    add_library(${name} SHARED ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                               ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${standins}/${folder} PREFIX "" OUTPUT_NAME ${file}
                                             SUFFIX "" NO_SONAME ON BUILD_RPATH "\$ORIGIN")
  endfunction()
  standin(standin_driver all libcuda.so.1 cuda/standin_driver.c cuda/standin_work.c
          cuda/standin_graph.c)
  target_link_libraries(standin_driver PRIVATE by_cuda_emulator Threads::Threads -Wl,-soname,libcuda.so.1)
  standin(standin_products all libcublasLt.so.12 cuda/standin_products.c)
  target_link_libraries(standin_products PRIVATE standin_driver)
  standin(standin_compiler all libnvrtc.so.12 cuda/standin_compiler.c)
  target_link_libraries(standin_compiler PRIVATE standin_driver)
  standin(standin_meter all libnvidia-ml.so.1 cuda/standin_meter.c)
  target_link_libraries(standin_meter PRIVATE standin_driver)
  standin(standin_old old libcuda.so.1 cuda/standin_old.c)
  standin(standin_old_products old_products libcublasLt.so.12 cuda/standin_old.c)
  # Machines without the compiler, without the library of products, and with one that is too new or too old.
  add_custom_command(TARGET standin_driver POST_BUILD
                     COMMAND ${CMAKE_COMMAND} -E make_directory ${standins}/bare ${standins}/driver ${standins}/new ${standins}/old_products
                     COMMAND ln -sf ../all/libcuda.so.1 ${standins}/bare
                     COMMAND ln -sf ../all/libcuda.so.1 ../all/libnvrtc.so.12 ${standins}/driver
                     COMMAND ln -sf ../all/libcuda.so.1 ../all/libnvrtc.so.12 ${standins}/new
                     COMMAND ln -sf ../all/libcuda.so.1 ../all/libnvrtc.so.12 ${standins}/old_products
                     COMMAND ln -sf ../all/libcublasLt.so.12 ${standins}/new/libcublasLt.so.13)
  add_library(standins INTERFACE)
  add_dependencies(standins standin_driver standin_products standin_compiler standin_meter standin_old
                   standin_old_products)
  target_compile_definitions(standins INTERFACE BY_STANDINS="${standins}")
else()
  add_library(standins INTERFACE)
endif()
