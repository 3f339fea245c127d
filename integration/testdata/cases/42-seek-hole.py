# SEEK_DATA and SEEK_HOLE skip data, or find none in a hole-free file.
def segments(name):
    fd = os.open(name, os.O_RDONLY); end = os.fstat(fd).st_size; off = 0; out = []
    while off < end:
        try: d = os.lseek(fd, off, os.SEEK_DATA)
        except OSError as e:
            assert e.errno == 6, e
            break
        off = os.lseek(fd, d, os.SEEK_HOLE); assert off > d; out.append((d, off))
    return out
def check(name):
    text = open(name, 'rb').read(); rest = bytearray(text)
    for a, b in segments(name): rest[a:b] = bytes(min(b, len(rest)) - a)
    assert not any(rest), name + ': data in a hole'
for name in ('f', 'big', 'sparse'): check(name)
assert segments('f') == [(0, os.stat('f').st_size)]
with open('sparse', 'r+b') as w: w.seek(1500000); w.write(b'in the middle')
check('sparse')
os.truncate('sparse', 1600000); os.truncate('sparse', 1 << 24); check('sparse')
assert segments('sparse')[-1][1] <= 1601536, 'no hole at the end'
with open('big', 'r+b') as w: w.seek(10 << 20); w.write(b'far')
check('big'); fd = os.open('big', os.O_RDWR)
assert ctypes.CDLL(None).fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0
check('big'); assert segments('big')[0][0] >= 1 << 20
