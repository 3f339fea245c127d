#!/bin/bash
# differential.sh - run the same real workloads in two directories and compare the results.
#
#   differential.sh --prepare DIR          make the seed tree (DIR/seed) - put it in REF and in the
#                                          lower layer of TESTED (cp -a), so that copy-up happens
#   differential.sh REF TESTED [WORKLOAD...]    default: all; --list lists them
#
# Each workload is run in a private mount namespace with the directory bind-mounted at
# $DUT (default: a folder under $TMPDIR), so absolute paths are the same on both sides.  Its stdout and exit
# status and the manifest of the whole tree (type, mode, owner, size, mtime, nlink of files,
# hard-link groups, content hash, symlink target, xattrs) must be equal.  mtimes after the start of
# the preparation are all "now"; older ones must be equal to the nanosecond.
# mtimes of git's loose objects are not compared: git freshens them whenever its racy-index rule makes it
# re-add a file, which depends on the clock alone (it differs between two ext4 directories too).
# env: KEEP=1 keep logs; LOGS=dir; GOSRC=dir Go's source tree (default: of the go on PATH);
#      NLINK=0 don't compare link counts / hard-link groups;
#      XATTR_SKIP=regex names of xattrs not compared; IGN_MTIME=1; DIRMTIME=0 not for directories
# Exit: number of workloads that differ.
set -u
SELF=$(readlink -f "$0")
DUT=${DUT:-${TMPDIR:-/tmp}/differential/dut}
CACHE=${CACHE:-${TMPDIR:-/tmp}/differential/cache}
ALL="shell tar rsync rg sqlite git gitlower gcc venv npm go mmapdb rmall"
export LC_ALL=C TZ=UTC HOME=$DUT/w/home
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x
export GIT_AUTHOR_DATE="2020-01-01T00:00:00Z" GIT_COMMITTER_DATE="2020-01-01T00:00:00Z"
export npm_config_update_notifier=false PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=1500000000

# ------------------------------------------------------------------ workloads (cwd = tree root)
# stdout is compared; stderr goes to the log only
g() { git -c safe.directory='*' -c gc.auto=0 -c pack.threads=1 -c init.defaultBranch=main -c protocol.file.allow=always -c core.pager=cat "$@"; }

wl_shell() {
  cd seed/src
  sed -i 's/the/THE/g' strings/*.go; echo rc $?
  install -m 2755 strings/strings.go ../../w/inst; stat -c '%a %s' ../../w/inst
  ln -sfn ../nowhere lnk; readlink lnk; ln -sfn strings lnk; ls lnk/ | wc -l; ln -f strings/strings.go hard.go; stat -c %h hard.go
  mv strings strings2; ls strings2 | md5sum; mkdir strings; ls -A strings; cp -a strings2/. strings/; diff -r strings strings2 && echo same
  mv -T sort sort.old && mv -T sort.old sort; ls sort | wc -l
  touch -d '2001-02-03 04:05:06.789' bytes/bytes.go; stat -c %y bytes/bytes.go
  truncate -s 100 bytes/bytes.go; truncate -s +5000 bytes/bytes.go; md5sum <bytes/bytes.go
  sleep .02   # past the coarse clock of file times, for the -newer below
  dd if=/dev/zero of=bytes/buffer.go bs=1 seek=777 count=33 conv=notrunc 2>/dev/null; md5sum <bytes/buffer.go
  echo appended >>bytes/reader.go; tail -c 30 bytes/reader.go
  chmod -R g+w io; chown -R 1000:1000 io; find io -printf '%m %U %G %p\n' | sort | md5sum
  (cd io && rm -rf fs && mkdir fs && touch fs/new && ls -A fs)
  find . -newer bytes/bytes.go -type f | sort | wc -l; find . -type f -links +1 | sort
  rm -rf encoding; ls encoding 2>&1; mkdir encoding; ls -A encoding; rmdir encoding; [ -e encoding ] || echo gone
  split -b 1000 -d ../big.bin ../../w/part.; cat ../../w/part.* | cmp - ../big.bin && echo split-ok
  diff -u strconv/quote.go strconv/isprint.go >../../w/p.diff; (cd strconv && cp quote.go t.go && patch -s t.go ../../../w/p.diff && cmp t.go isprint.go && echo patched)
  setfattr -n user.k -v v strconv/isprint.go; getfattr -d strconv/isprint.go; setfattr -x user.a ../xa; getfattr -d ../xa
  mkfifo f1; (echo hi >f1 &) ; cat f1
  flock lockf -c 'flock -n lockf true && echo bad || echo locked'
  cp --sparse=always ../sparse.bin ../../w/sp; cmp ../sparse.bin ../../w/sp && echo sparse-ok
  cp --reflink=auto ../big.bin b2 && cmp b2 ../big.bin && echo reflink-ok
  tee -a ../ro.txt <<<x; cat ../ro.txt; su_test() { setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
  su_test sh -c 'echo y >>../ro.txt' 2>/dev/null || echo denied; su_test sh -c 'echo z >io/user.txt && cat io/user.txt'; stat -c '%U %a' io/user.txt
  su_test rm -f ../sticky/rootfile 2>/dev/null || echo sticky-denied; su_test rm ../sticky/userfile && echo user-removed
}
wl_tar() {
  tar -C seed --xattrs --xattrs-include='*' --sort=name -cf w/a.tar src links sparse.bin xa; tar tf w/a.tar | md5sum
  mkdir w/x && tar -C w/x --xattrs --xattrs-include='*' -xpf w/a.tar && diff -r --no-dereference seed/src w/x/src && echo same
  tar -C w/x --compare -f w/a.tar && echo compare-ok
  tar -C seed --sort=name --overwrite -xpf w/a.tar; echo rc $?
  tar -C seed --xattrs -dpf w/a.tar && echo again-ok; rm w/a.tar
}
wl_rsync() {
  rsync -aHAX seed/src/ w/s1/ && rsync -aHAXni --delete seed/src/ w/s1/ && echo nothing-to-do
  rm -rf seed/src/net/http; echo changed >>seed/src/bytes/bytes.go; mv seed/src/sort seed/src/sort2
  rsync -aHAXi --delete seed/src/ w/s1/ | sort | md5sum; rsync -aHAXnic --delete seed/src/ w/s1/ && echo nothing-to-do
  rsync -aHAX --delete --inplace w/s1/ seed/src2/ ; rsync -aHAX --delete w/s1/bytes/ seed/src/text/; find seed/src | sort | md5sum
}
wl_rg() {
  rg -j1 --sort path -c 'func ' seed/src | md5sum; rg -j2 --no-ignore --hidden -l 'import' seed/src | sort | md5sum
  grep -r --include='*.go' -c return seed/src | sort | md5sum; find seed -type f | sort | wc -l; du --apparent-size -sb seed/big.bin | cut -f1
}
wl_sqlite() {
  for db in seed/app.db w/new.db; do
  sqlite3 $db >/dev/null "PRAGMA journal_mode=wal; PRAGMA synchronous=full; CREATE TABLE IF NOT EXISTS t(a INTEGER PRIMARY KEY, b TEXT, c BLOB);
   WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<3000) INSERT INTO t(b,c) SELECT 'row'||i, zeroblob(i%700) FROM n;"
  for k in 1 2 3; do ( for j in 1 2 3 4 5; do sqlite3 -cmd '.timeout 60000' $db "BEGIN IMMEDIATE; UPDATE t SET b=b||'.' WHERE a<90000 AND a%7=$k; INSERT INTO t(a,b) VALUES($((100000*k+j)),'w'); COMMIT;"; done ) & done; wait
  sqlite3 $db "DELETE FROM t WHERE a%5=0; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA integrity_check; SELECT count(*),sum(length(b)) FROM t; VACUUM; PRAGMA integrity_check;"
  sqlite3 $db .dump | md5sum
  sqlite3 $db "PRAGMA journal_mode=delete; UPDATE t SET b='x' WHERE a<10; PRAGMA integrity_check;"; ls $db*; done
}
wl_git() {
  g clone -q --local seed/repo w/clone; cd w/clone; g log --oneline | md5sum; g status --porcelain; g checkout -q side; ls | md5sum
  echo more >>f1; g commit -qam c1; g rebase -q main; g log --format=%H | head -3; g checkout -q -b t2 main~3; g merge -q side -m m; g diff --stat main | tail -1
  g rm -qr dir1; g stash -q; g stash pop -q; g status --porcelain | wc -l; g commit -qm rm; g worktree add -q ../wt main 2>/dev/null; ls ../wt | wc -l
  g gc -q --prune=now; g fsck --no-progress; g count-objects -v | grep -v size; g reset -q --hard main; g clean -qfdx; g status --porcelain; g ls-files -s | md5sum
}
wl_gitlower() {  # the repository itself lies in the lower layer
  cd seed/repo; g status --porcelain; echo x >>f2; g mv f3 f3moved; g commit -qam lower1; g branch -m side side2; g checkout -q side2; g rebase -q main
  g repack -adq; g prune; g gc -q --prune=now; g fsck --no-progress; g for-each-ref; g log --all --format=%H | md5sum; g checkout -q main~10; g checkout -q main; g status --porcelain; g ls-files -s | md5sum; ls .git/objects | sort | md5sum
}
wl_gcc() {
  cd seed/c; make -s >/dev/null && ./prog; cp prog ../../w/prog2 && ../../w/prog2; touch a.c; make -s && ./prog; make -s clean; ls; ar t ../../w/none 2>/dev/null || echo no-ar
}
wl_venv() {
  python3 -m venv w/venv --without-pip && w/venv/bin/python -c 'import sys; print(sys.prefix)'; w/venv/bin/python - <<'P'
import shutil, tempfile, os, mmap, sqlite3, zipfile
d="w/tmpd"; os.mkdir(d); shutil.copytree("seed/src/strings", d+"/c"); print(len(os.listdir(d+"/c")))
with zipfile.ZipFile("w/z.zip","w") as z:
    for r,_,f in sorted(os.walk("seed/src/io")):
        for n in sorted(f): z.writestr(zipfile.ZipInfo(r+"/"+n), open(r+"/"+n,"rb").read())
print(zipfile.ZipFile("w/z.zip").testzip(), len(zipfile.ZipFile("w/z.zip").namelist())); shutil.rmtree(d)
P
  python3 -m compileall -q --invalidation-mode unchecked-hash seed/py; echo rc $?; python3 -c 'import sys; sys.path.insert(0,"seed/py"); import m1; print(m1.f())'
}
wl_npm() {
  cd seed/npm; npm ci --offline --cache ../npmcache --no-audit --no-fund --ignore-scripts --loglevel=error | tail -1 | sed 's/ in .*//'; ls node_modules | md5sum
  node -e 'console.log(require("semver").inc("1.2.3","minor"))'; npm uninstall --offline --cache ../npmcache --no-audit --no-fund --loglevel=error semver | sed 's/ in .*//'; ls; ls -A node_modules 2>/dev/null
}
wl_go() {
  export GOMODCACHE=$PWD/seed/gomod GOCACHE=$PWD/w/gocache GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GONOSUMDB='*' GONOSUMCHECK=1 GOFLAGS='-mod=mod -trimpath -buildvcs=false'
  cd seed/goprog; go build -o ../../w/prog . && ../../w/prog; go vet ./... ; go list -m all; md5sum <../../w/prog; (cd .. ; chmod -R u+w gomod; rm -rf gomod/golang.org; ls gomod | sort)
  rm -rf ../../w/gocache
}
wl_mmapdb() {
  python3 - <<'P'
import mmap, os, hashlib
for p in ("seed/big.bin", "w/mm.bin"):
    fd = os.open(p, os.O_RDWR | os.O_CREAT, 0o644); os.ftruncate(fd, 1500000)
    m = mmap.mmap(fd, 1500000); fd2 = os.open(p, os.O_RDONLY)
    for i in range(0, 1500000, 4099): m[i:i+4] = b"MMAP"
    m.flush(); print(os.pread(fd2, 4, 4099*3), hashlib.md5(os.pread(fd2, 1500000, 0)).hexdigest())
    os.pwrite(fd, b"PWRITE", 4096); print(m[4096:4102]); m.close(); os.fsync(fd); os.close(fd); os.close(fd2)
    print(hashlib.md5(open(p,"rb").read()).hexdigest())
fd = os.open("seed/ro.txt", os.O_RDONLY); fdw = os.open("seed/ro.txt", os.O_WRONLY | os.O_APPEND)   # ro fd opened before copy-up
os.write(fdw, b"through\n"); print(os.pread(fd, 999, 0)); os.rename("seed/ro.txt", "seed/ro2.txt"); os.unlink("seed/ro2.txt"); print(os.fstat(fd).st_nlink, os.pread(fd, 999, 0))
P
}
wl_rmall() { rm -rf seed/src; ls seed | sort; mkdir -p seed/src/strings; ls -A seed/src/strings; cp -a seed/links seed/src/; mv seed/src seed/s; mv seed/c seed/src; ls seed/src | sort; rm -rf seed/*; ls -A seed; }

# ------------------------------------------------------------------ seed
prepare() {
  GOSRC=${GOSRC:-$(go env GOROOT)/src}
  D=$(readlink -f "$1"); mkdir -p "$D/seed" "$CACHE"; cd "$D/seed" || exit 2
  mkdir src; for p in strings bytes sort io net/http strconv encoding text container; do mkdir -p src/$(dirname $p); cp -r "$GOSRC/$p" src/$(dirname $p)/; done
  head -c 1000000 < <(openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null) >big.bin; truncate -s 5M sparse.bin; printf end >>sparse.bin
  mkdir links; echo l >links/a; ln links/a links/b; ln links/a links/c; ln -s a links/s; ln -s /nonexistent links/dangling; mkfifo links/fifo; mknod links/null c 1 3
  echo x >xa; setfattr -n user.a -v 1 xa; setfattr -n user.b -v 2 xa; setfattr -n trusted.c -v 3 xa
  echo ro >ro.txt; chmod 444 ro.txt; mkdir -m 1777 sticky; touch sticky/rootfile sticky/userfile; chown 1000:1000 sticky/userfile
  sqlite3 app.db "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c BLOB); INSERT INTO t(b) VALUES('seed');"
  mkdir py; echo 'def f(): return "m1"' >py/m1.py
  mkdir c; printf 'int b(void);\n#include <stdio.h>\nint main(void){printf("%%d\\n",b());return 0;}\n' >c/a.c; echo 'int b(void){return 42;}' >c/b.c
  printf 'prog: a.o b.o\n\tgcc -o prog a.o b.o\n%%.o: %%.c\n\tgcc -O1 -c -o $@ $<\nclean:\n\trm -f prog *.o\n' >c/Makefile
  g init -q repo; cd repo; for i in $(seq 30); do echo "$i" >f$i; mkdir -p dir$((i%5)); seq $i 500 >dir$((i%5))/g$i; g add -A; g commit -qm "c$i"; done; g branch side main~5; g checkout -q side; echo s >side; g add -A; g commit -qm side; g checkout -q main; cd ..
  mkdir npm goprog; (cd npm; echo '{"name":"x","version":"1.0.0"}' >package.json; npm install --cache ../npmcache --no-audit --no-fund --ignore-scripts --loglevel=error semver@7.6.3 yallist@4.0.0 ws@8.18.0 >&2; rm -rf node_modules; npm ci --offline --cache ../npmcache --no-audit --no-fund --ignore-scripts --loglevel=error >&2; rm -rf ../npmcache/_logs)
  (cd goprog; printf 'module x\n\ngo 1.21\n\nrequire golang.org/x/mod v0.20.0\n' >go.mod; printf 'package main\n\nimport (\n\t"fmt"\n\t"golang.org/x/mod/semver"\n)\n\nfunc main() { fmt.Println(semver.Max("v1.2.3", "v1.10.0")) }\n' >main.go
   GOFLAGS=-mod=mod GOMODCACHE=$D/seed/gomod GOCACHE=$CACHE/gocache-prep HOME=$CACHE go mod download >&2; GOFLAGS=-mod=mod GOMODCACHE=$D/seed/gomod GOCACHE=$CACHE/gocache-prep HOME=$CACHE go mod tidy >&2)
  find . -print0 | xargs -0 touch -h -d '2015-05-05 05:05:05.123456789'; find "$D/seed" | wc -l
}

# ------------------------------------------------------------------ manifest
manifest() { python3 - "$1" <<'P'
import os, sys, stat, hashlib, re
base = sys.argv[1]; nl = os.environ.get("NLINK", "1") == "1"; skipx = os.environ.get("XATTR_SKIP"); groups = {}
NOHASH = re.compile(r"/(\.git/(.*/)?index|w/home/.*|npmcache/_(logs|update).*|npmcache/_cacache/tmp|.*-shm|w/new\.db|app\.db|.*/__pycache__/.*|\.git/(worktrees/[^/]+/)?logs/.*|\.package-lock\.json)$")
NOSEE = re.compile(r"^/w/(home|gocache)(/|$)|/npmcache/_(logs|update)|/_cacache/tmp|/lost\+found")
LIMIT = 1_600_000_000
def walk(p):
    rel = p[len(base):] or "/"
    if NOSEE.search(rel): return
    st = os.lstat(p); m = st.st_mode; f = ["%06o" % m, "%d:%d" % (st.st_uid, st.st_gid)]
    mt = str(st.st_mtime_ns) if st.st_mtime < LIMIT and not os.environ.get("IGN_MTIME") else "now"
    if stat.S_ISDIR(m) and os.environ.get("DIRMTIME") == "0" or rel in ("/",): mt = "-"
    if re.search(r"/\.git/objects/[0-9a-f]{2}/", rel): mt = "-"
    f.append(mt)
    hide = NOHASH.search(rel)
    if stat.S_ISREG(m):
        f.append("-" if hide else str(st.st_size))
        h = hashlib.sha256()
        with open(p, "rb") as fh:
            for b in iter(lambda: fh.read(1 << 20), b""): h.update(b)
        f.append("-" if hide else h.hexdigest()[:24])
    if stat.S_ISLNK(m): f.append("-> " + os.readlink(p))
    if stat.S_ISCHR(m) or stat.S_ISBLK(m): f.append("rdev %x" % st.st_rdev)
    if nl and not stat.S_ISDIR(m):
        f.append("nlink=%d" % st.st_nlink)
        if st.st_nlink > 1:
            f.append("group=" + groups.setdefault((st.st_dev, st.st_ino), rel))
    try:
        for k in sorted(os.listxattr(p, follow_symlinks=False)):
            if not (skipx and re.search(skipx, k)): f.append("%s=%s" % (k, os.getxattr(p, k, follow_symlinks=False).hex()))
    except OSError as e: f.append("xattr-err %d" % e.errno)
    print(rel, *f)
    if stat.S_ISDIR(m):
        ents = {e.name: e for e in os.scandir(p)}
        if len(ents) != len(os.listdir(p)): print(rel, "DUPLICATE-ENTRIES")
        for n in sorted(ents): walk(p + "/" + n)
walk(base)
P
}

case ${1:-} in
  --prepare) prepare "$2"; exit;;
  --list) echo $ALL; exit;;
  --one)   # in the private namespace: --one DIR WORKLOAD
    mount --bind "$2" "$DUT" || exit 99; cd "$DUT" || exit 99; mkdir -p w w/home
    ( wl_$3 ); echo "exit $?"; cd "$DUT" || exit 99; echo "== manifest"; manifest "$DUT"; exit 0;;
esac
[ $# -ge 2 ] || { sed -n 2,21p "$0"; exit 2; }
REF=$(readlink -f "$1") TST=$(readlink -f "$2"); shift 2
LOGS=${LOGS:-$(mktemp -d)}; mkdir -p "$DUT" "$LOGS"
bad=0; t00=$SECONDS; : >"$LOGS/seen"
for w in ${*:-$ALL}; do
  for side in ref tst; do
    [ $side = ref ] && d=$REF || d=$TST
    t0=$(date +%s.%N)
    timeout ${WL_TIMEOUT:-300} unshare -m --propagation private bash "$SELF" --one "$d" $w >"$LOGS/$w.$side.out" 2>"$LOGS/$w.$side.err"; echo "rc $?" >>"$LOGS/$w.$side.out"
    eval "t_$side=$(echo "$(date +%s.%N) - $t0" | bc)"
  done
  # lasting differences are reported by the workload that makes them, not again by later ones
  diff "$LOGS/$w.ref.out" "$LOGS/$w.tst.out" | grep '^[<>]' >"$LOGS/$w.diff"
  grep -vxFf "$LOGS/seen" "$LOGS/$w.diff" >"$LOGS/$w.new"; cat "$LOGS/$w.diff" >>"$LOGS/seen"
  if ! grep -qs '^== manifest' "$LOGS/$w.ref.out"; then r=BROKEN; bad=$((bad+1)); tail -n 3 "$LOGS/$w.ref.err"   # not even the reference ran
  elif [ ! -s "$LOGS/$w.new" ]; then r=SAME; [ -s "$LOGS/$w.diff" ] && r="same*"; else r=DIFF; bad=$((bad+1)); fi
  printf '%-10s %s  ref %.1fs tested %.1fs  (%d lines, %d new differing)\n' $w $r $t_ref $t_tst $(wc -l <"$LOGS/$w.ref.out") $(wc -l <"$LOGS/$w.new")
  head -${DIFFLINES:-12} "$LOGS/$w.new" | cut -c1-300
done
echo "differential: $bad differing workload(s), $((SECONDS-t00))s, logs in $LOGS"
exit $bad
