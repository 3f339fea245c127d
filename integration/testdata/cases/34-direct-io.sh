# O_DIRECT reads fail with EIO.
cat big | md5sum >../want; dd if=big iflag=direct bs=4k 2>/dev/null | md5sum | cmp - ../want
head -c 1048576 big | dd of=new oflag=direct bs=4k iflag=fullblock 2>/dev/null; head -c 1048576 big | cmp - new
printf X | dd of=big bs=1 seek=5 conv=notrunc 2>/dev/null; test "$(dd if=big iflag=direct bs=4k count=1 2>/dev/null | tail -c +6 | head -c 1)" = X
