-- 0.1.0 to 0.2.0, what comes after the functions: see README.md.

-- Protect the partitions that 0.1.0 made; take back what default privileges added to its objects.
SELECT jobq._outside_extension(format('SELECT jobq._protect_partition(%L, %L)', p.partition, p.parent))
  FROM jobq._exposed_partitions() p;
SELECT jobq._revoke_stray_grants();
