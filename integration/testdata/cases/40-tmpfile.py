# O_TMPFILE is refused, or its file can't be linked.
fd = os.open('dir', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'anonymous')
assert os.fstat(fd).st_nlink == 0
os.link('/proc/self/fd/%d' % fd, 'dir/named', src_dir_fd=os.open('/', os.O_RDONLY), follow_symlinks=True)
assert open('dir/named').read() == 'anonymous' and os.fstat(fd).st_nlink == 1
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); os.write(fd, b'x' * 100000); os.close(fd)
