# Sourced by the run scripts of the examples: a throwaway server with jobq.
#
#   run [--pg-config=PATH] [--keep] [--server=DIR] [--smoke]
#
# --keep leaves the server up and prints how to look around; --server uses a private server
# that test/run made; --smoke leaves out what takes a minute or needs packages of test/deps --full.
. "$(dirname "${BASH_SOURCE[0]}")/../test/lib/cluster.sh"

keep= server= smoke= web_address= pids=()

# begin NAME ARGUMENT...: reads the arguments of a run script, makes $work;
# $began is the time of the call
begin() {
  local name=$1 arg
  shift
  began=$(now_ms)
  for arg; do
    case $arg in
      --pg-config=*) pg_config=${arg#*=} ;;
      --keep) keep=1 ;;
      --server=*) server=${arg#*=} ;;
      --smoke) smoke=1 ;;
      *) die "unknown argument: $arg (see the head of ${BASH_SOURCE[0]})" ;;
    esac
  done
  make_work "$name"
  trap finish EXIT
  trap 'exit 130' INT TERM HUP
}

finish() {
  local rc=$?
  trap - EXIT
  [ $rc = 0 ] || [ -z "${server_log:-}" ] || { echo "--- the end of the server's log:"; tail -15 "$server_log"; } >&2
  if [ -z "$keep" ] || [ $rc != 0 ]; then
    kill "${pids[@]}" 2>/dev/null || true
    kill -CONT "${pids[@]}" 2>/dev/null || true  # one that an example has stopped
    stop_cluster || true
    rm -rf "$work"
  fi
  exit $rc
}

# start_server [settings...]: a cluster with this jobq in $work/main
start_server() {
  local t
  if [ -n "$server" ]; then
    use_server "$server"
  else
    build_jobq
    stage_server
    echo "built jobq for $("$pg_config" --version): $(seconds_since "$began")"
  fi
  t=$(now_ms)
  start_cluster main "$@"
  echo "started a server in $work: $(seconds_since "$t")"
}

# background LOG COMMAND...: starts a program that ends with the example; $! is its process
background() {
  local log=$work/log/$1
  shift
  (replace=exec; as_user "$@") >"$log" 2>&1 &
  pids+=($!)
  disown  # so the shell does not report its end
}

# sql ARGUMENT...: psql, without headers and padding; query SQL: prints the answer of a query
sql() { as_user psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
query() { sql -c "$1"; }

# check TEXT EXPECTED ANSWER: prints the text and the answer; ends the example if it is another
check() {
  [ "$3" = "$2" ] || die "the example failed: $1: '$3', not '$2'"
  echo "   $1: $3"
}

# wait_true SQL: waits until a query is true, for two minutes at most
wait_true() {
  local end=$((SECONDS + 120))
  until [ "$(query "$1")" = t ]; do
    [ $SECONDS -lt $end ] || die "the example failed: not true in two minutes: $1"
    sleep 0.1
  done
}

# start_web DATABASE ROLE: jobq-web at $web_address; ROLE, and no other, needs a password
start_web() {
  local port=7432
  while (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
  printf 'local all %s scram-sha-256\nlocal all,replication all trust\n' "$2" | as_user_write "$cluster/data/pg_hba.conf"
  as_user pg_ctl -D "$cluster/data" reload >/dev/null
  background web jobq-web --dsn="host=$PGHOST dbname=$1" --listen="127.0.0.1:$port"
  until grep -q 'jobq-web: serves' "$work/log/web"; do
    kill -0 "${pids[-1]}" 2>/dev/null || { cat "$work/log/web" >&2; die "jobq-web did not start"; }
    sleep 0.1
  done
  web_address=http://127.0.0.1:$port
}

# say_how_to_look DATABASE: after --keep, prints how to connect and how to end the server
say_how_to_look() {
  local as=
  [ -n "$keep" ] || return 0
  [ "$(id -u)" != 0 ] || as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups "
  cat <<END

The server is still up.  To look around:
  $bin/psql -h $PGHOST -U postgres $1
To end it:
  ${pids[*]:+kill ${pids[*]}; }$as$bin/pg_ctl -D $cluster/data -m fast stop && rm -rf $work
END
}
