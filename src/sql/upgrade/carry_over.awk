# Prints the statements of the install script that an upgrade takes unchanged:
# functions and views, which replace those of the former release, and comments.
# A statement begins at the start of a line and ends with a semicolon at the end
# of one, outside of $$.
{
  line = $0
  quotes = gsub(/\$\$/, "&", line)
  if (!inside && !/^[[:space:]]*(--.*)?$/) {
    inside = 1
    wanted = sub(/^CREATE FUNCTION /, "CREATE OR REPLACE FUNCTION ") || sub(/^CREATE VIEW /, "CREATE OR REPLACE VIEW ") || /^COMMENT ON /
  }
  if (!inside)
    next
  if (wanted)
    print
  quoted = (quoted + quotes) % 2
  if (!quoted) {
    line = $0
    sub(/[[:space:]]+--.*$/, "", line)
    if (line ~ /;[[:space:]]*$/)
      inside = 0
  }
}
END {
  if (inside || quoted) {
    print "carry_over.awk: the last statement does not end" > "/dev/stderr"
    exit 1
  }
}
