# Sourced by test/run and examples/demo/run: a private copy of the server with this jobq in it, and
# throwaway clusters.  Nothing outside $work and the build tree is touched; root is not needed.
#
# Before PostgreSQL 18 an extension can only be loaded from the server's own directories.  A server
# finds those relative to its executable, so a copy of its bin directory with links to everything
# else, and jobq installed beside them (DESTDIR), is a server of its own.
#
# Root builds, but never runs a server or a test: as_user does that as
# postgres or the user "nobody".

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
initdb_of_tests=$top/test/lib/initdb
pg_config=${PG_CONFIG:-pg_config}
user=$(id -un)
for v in "${!PG@}"; do [ "$v" = PG_TEST_TIMEOUT_DEFAULT ] || unset "$v"; done

die() { echo "$*" >&2; exit 1; }
now_ms() { local t=${EPOCHREALTIME/[.,]/}; echo "${t::-3}"; }
seconds_since() { local ms=$(($(now_ms) - $1)); printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100)); }

# make_work NAME: $work, a private directory owned by the user of the servers
make_work() {
  work=$(mktemp -d "/tmp/$1.XXXXXX")
  chmod 755 "$work"
  mkdir "$work/log"
  if [ "$(id -u)" = 0 ]; then
    user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    chown "$user": "$work" "$work/log"
  fi
}

# With replace=exec the command takes the place of the shell.
as_user() {
  local run=(env -C "$work" -u SUDO_UID -u SUDO_USER HOME="$work" USER="$user" LOGNAME="$user" PATH="${bin:+$bin:}$PATH" "$@")
  if [ "$(id -u)" = 0 ]; then
    run=(setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups -- "${run[@]}")
  fi
  ${replace:-} "${run[@]}" </dev/null
}

# build_jobq [make variables...]
build_jobq() {
  make --no-print-directory -s -C "$top" -j"$(nproc)" PG_CONFIG="$pg_config" "$@" all >"$work/log/build" 2>&1 ||
    { cat "$work/log/build" >&2; die "the build failed"; }
}

# links FROM TO: every entry of FROM as a link in TO, except jobq's and the directories that jobq is
# installed in
links() {
  local f
  mkdir -p "$2"
  for f in "$1"/*; do
    case ${f##*/} in jobq*|extension|man) ;; *) ln -s "$f" "$2/" ;; esac
  done
}

# use_server DIR: the directories of a private server: $bin, $pkglib, and $pgxs of the real one
use_server() {
  bin=$1$("$pg_config" --bindir)
  pkglib=$1$("$pg_config" --pkglibdir)
  pgxs=$(dirname "$("$pg_config" --pgxs)")/../..
}

# stage_server [make variables...]: makes a private server with this jobq
stage_server() {
  local stage=$work/server share
  share=$("$pg_config" --sharedir)
  use_server "$stage"
  mkdir -p "$bin"
  cp -L "$("$pg_config" --bindir)"/* "$bin/"
  mv "$bin/initdb" "$bin/initdb.real"
  cp "$initdb_of_tests" "$bin/initdb"
  mkdir "$bin/initdb.templates"
  [ "$(id -u)" != 0 ] || chown "$user": "$bin/initdb.templates"
  links "$share" "$stage$share"
  links "$share/extension" "$stage$share/extension"
  links "$("$pg_config" --pkglibdir)" "$pkglib"
  make --no-print-directory -s -C "$top" PG_CONFIG="$pg_config" DESTDIR="$stage" "$@" install >"$work/log/install" 2>&1 ||
    { cat "$work/log/install" >&2; die "make install failed"; }
  ! find -L "$stage" -name 'jobq*' -exec realpath {} + | grep -v "^$(realpath "$stage")/" >&2 || die "installed outside $stage"
}

# start_cluster NAME [settings...]: superuser postgres, no TCP, only a socket in
# $work/NAME; sets PGHOST, PGUSER
start_cluster() {
  local dir=$work/$1 libs=jobq
  shift
  [ ! -e "$("$pg_config" --pkglibdir)/pg_cron.so" ] || libs=jobq,pg_cron
  as_user mkdir -m 700 "$dir"
  as_user initdb -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$work/log/initdb" 2>&1 ||
    { cat "$work/log/initdb" >&2; die "initdb failed"; }
  {
    echo "listen_addresses = ''"
    echo "unix_socket_directories = '$dir'"
    echo "shared_preload_libraries = '$libs'"
    echo "max_worker_processes = 40"
    echo "max_prepared_transactions = 20"
    echo "wal_level = logical"
    echo "fsync = off"
    echo "log_line_prefix = '%m [%p] %b %a: '"
    echo "timezone = 'UTC'"
    echo "log_timezone = 'UTC'"
    printf '%s\n' "$@"
  } | as_user_write "$dir/data/postgresql.auto.conf"
  server_log=$work/log/server
  as_user pg_ctl -D "$dir/data" -l "$server_log" -w -t 120 ${server_program:+-p "$server_program"} start \
    >"$work/log/start" 2>&1 || { cat "$work/log/start" "$server_log" >&2; die "the server did not start"; }
  cluster=$dir
  export PGHOST=$dir PGUSER=postgres PGDATABASE=postgres
}

as_user_write() { cat >"$1"; chmod 600 "$1"; [ "$(id -u)" != 0 ] || chown "$user": "$1"; }

stop_cluster() {
  [ -z "${cluster:-}" ] || as_user pg_ctl -D "$cluster/data" -m fast -w -t 60 stop >"$work/log/stop" 2>&1
  cluster=
}
