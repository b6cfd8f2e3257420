-- Prints the progress of the run :run, a line for each change, until it has ended.  Variable line:
-- the last line.
SELECT line, live FROM tell.next_line(:'run', :'line') \gset
\echo :line
\if :live
\ir follow.sql
\endif
