# cmake -DINPUT=<file> -DOUTPUT=<file> -P EmbedBytes.cmake: writes the bytes of INPUT as a comma-separated list of C literals.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "${bytes}\n")
