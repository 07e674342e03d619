# Writes OUT, a header with the bytes of the file SOURCE as `static const unsigned char NAME[]`: run at the build,
# when SOURCE has changed.
file(READ ${SOURCE} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "static const unsigned char ${NAME}[] = {\n${bytes}\n};\n")
