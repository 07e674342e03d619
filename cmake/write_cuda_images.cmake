# Writes OUT, the C file that holds the kernels: SOURCES, HEADERS (NAME=FILE) and IMAGES (FAMILY_ARCHITECTURE files),
# each a list with commas. Files are included as they are; a zero follows each. COMPRESSED (1 or 0): whether images are.
string(REPLACE "," ";" SOURCES "${SOURCES}")
string(REPLACE "," ";" HEADERS "${HEADERS}")
string(REPLACE "," ";" IMAGES "${IMAGES}")
set(count 0)
set(bytes "")
set(headers "")
set(images "")
# hold(NAME ARCHITECTURE FILE COMPRESSED LIST): a file inside, and its row in a list.
macro(hold name architecture file compressed list)
  math(EXPR count "${count} + 1")
  file(SIZE ${file} size)
  string(APPEND bytes "BY__CUDA_BYTES(image_${count}, \"${file}\")\n")
  string(APPEND ${list} "    {\"${name}\", ${architecture}, image_${count}, ${size}, ${compressed}},\n")
endmacro()
foreach(header ${HEADERS})
  string(REGEX MATCH "^([^=]*)=(.*)$" matched ${header})
  hold(${CMAKE_MATCH_1} 0 ${CMAKE_MATCH_2} 0 headers)
endforeach()
foreach(source ${SOURCES})
  get_filename_component(family ${source} NAME_WE)
  hold(${family} 0 ${source} 0 images)
endforeach()
foreach(image ${IMAGES})
  get_filename_component(name ${image} NAME)
  string(REGEX MATCH "^(.*)_(sm|compute)_([0-9]+)a?$" matched ${name})
  set(architecture ${CMAKE_MATCH_3})
  if(CMAKE_MATCH_2 STREQUAL "compute")
    set(architecture -${architecture})
  endif()
  hold(${CMAKE_MATCH_1} ${architecture} ${image} ${COMPRESSED} images)
endforeach()
file(WRITE ${OUT} "/* Made by cmake/write_cuda_images.cmake. */
#include \"device/cuda/images.h\"

#define BY__CUDA_BYTES(name, file)                                                                 \\
    __asm__(\".section .rodata\\n.balign 16\\n\" #name \":\\n.incbin \\\"\" file \"\\\"\\n.byte 0\\n.previous\\n\");   \\
    extern const unsigned char name[] __attribute__((visibility(\"hidden\")));
${bytes}
static const by__cuda_image headers[BY__CUDA_HEADERS] = {
${headers}};

static const by__cuda_image images[] = {
${images}};

const by__cuda_image *by__cuda_images(size_t *count)
{
    *count = sizeof images / sizeof images[0];
    return images;
}

const by__cuda_image *by__cuda_headers(void)
{
    return headers;
}
")
