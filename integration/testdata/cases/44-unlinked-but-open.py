# An unlinked open file leaves something behind, has a wrong link count, or loses what was written.
for name in ('f', 'new'):
    fd = os.open(name, os.O_RDWR | os.O_CREAT); os.unlink(name)
    os.pwrite(fd, b'after the unlink', 0); os.fsync(fd)
    assert os.fstat(fd).st_nlink == 0 and os.pread(fd, 5, 0) == b'after'
    os.ftruncate(fd, 3); assert os.fstat(fd).st_size == 3
    with open(name, 'w') as again: again.write('another')
    assert os.pread(fd, 9, 0) == b'aft' and open(name).read() == 'another'
    os.close(fd)
fd = os.open('dir/two', os.O_RDWR); os.rename('dir/one', 'dir/two'); assert os.fstat(fd).st_nlink == 0
os.write(fd, b'z'); os.close(fd)
os.mkdir('gone'); d = os.open('gone', os.O_RDONLY); os.rmdir('gone'); assert os.listdir(d) == []
assert not [n for n in os.listdir('.') if 'fuse' in n or n.startswith('.wh')]
