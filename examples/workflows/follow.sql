-- Prints the progress of the run :run, a line for each change, until it has ended.  Variable line:
-- the last line.
CALL tell.next_line(:'run', :'line') \gset
\echo :line
\if :live
\ir follow.sql
\endif
