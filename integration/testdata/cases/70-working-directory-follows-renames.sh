# getcwd after an ancestor was renamed; paths deeper than PATH_MAX by relative steps.
mkdir -p p/q/r; cd p/q/r; mv ../../../p ../../../pp; case "$(/bin/pwd)" in */pp/q/r) ;; *) /bin/pwd; exit 1 ;; esac; cd ../../..
python3 - <<'P'
import os
top = os.open('.', os.O_RDONLY); n = 'd' * 200
for i in range(30): os.mkdir(n); os.chdir(n)
open('leaf', 'w').write('deep')
assert open('leaf').read() == 'deep'; os.rename('leaf', 'leaf2'); os.unlink('leaf2')
for i in range(30): os.chdir('..'); os.rmdir(n)
P
