# Writes OUT, a header with the bytes of SOURCES (files in DIRECTORY, with colons between them) as
# `static const unsigned char NAME[]`: run at the build, when one of them has changed.
string(REPLACE ":" ";" SOURCES "${SOURCES}")
set(bytes "")
foreach(source ${SOURCES})
  file(READ ${DIRECTORY}/${source} part HEX)
  string(APPEND bytes "${part}")
endforeach()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "static const unsigned char ${NAME}[] = {\n${bytes}\n};\n")
