SET LOCAL search_path = pg_catalog, pg_temp;
\echo Use "CREATE EXTENSION jobq" to load this file. \quit

