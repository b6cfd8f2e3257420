#!/usr/bin/env bash
# The bridge between driver/cluster.py and test/lib/cluster.sh: builds jobq, starts one cluster with
# it, prints its settings for the driver, and runs until its standard input ends; then it removes
# all.  An interrupted or killed driver closes that pipe, too.  Each line of the input restarts the
# server; the answer is the new process id.
#
#   cluster.sh [setting = value]...     PG_CONFIG chooses the server
set -euo pipefail
. "$(dirname "$0")/../../test/lib/cluster.sh"

finish() {
  local rc=$?
  trap - EXIT
  [ $rc = 0 ] || [ -z "${server_log:-}" ] || tail -20 "$server_log" >&2
  stop_cluster || true
  rm -rf "$work"
  exit $rc
}
make_work jobq-bench
trap finish EXIT
trap 'exit 130' INT TERM HUP

build_jobq
stage_server
start_cluster main "${@//@socket@/$work/main}"
printf '%s\n' "$work" "$bin" "$cluster" "$(head -1 "$cluster/data/postmaster.pid")" "$("$pg_config" --version)"
while read -r _; do
  as_user pg_ctl -D "$cluster/data" -l "$server_log" -m fast -w -t 120 restart >"$work/log/restart" 2>&1
  head -1 "$cluster/data/postmaster.pid"
done
