/*
 * gauges.c
 *	  Values of metrics that tables have: health, disks, signals, bytes.
 *
 * The housekeeping process reads them once a minute, so that a scrape reads
 * shared memory only.  metrics_database.c leaves them out when they are old.
 */
#include "jobq.h"

#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "maintenance/gauges.h"

static void
copy_gauge(StatGauge *gauge, HeapTuple row, TupleDesc desc)
{
	bool		isnull;

	strlcpy(gauge->family, TextDatumGetCString(SPI_getbinval(row, desc, 1, &isnull)), sizeof(gauge->family));
	strlcpy(gauge->label, TextDatumGetCString(SPI_getbinval(row, desc, 2, &isnull)), sizeof(gauge->label));
	gauge->value = DatumGetFloat8(SPI_getbinval(row, desc, 3, &isnull));
}

bool
gauges_read(void *arg)
{
	JobqDb	   *db = arg;
	StatGauge  *gauges = palloc0(sizeof(StatGauge) * STAT_GAUGES);
	int			n = 0;

	SPI_connect();
	if (SPI_execute("SELECT g.family, g.label, g.value FROM jobq_internal._gauges() g", false, STAT_GAUGES) != SPI_OK_SELECT)
		elog(ERROR, "could not read the gauges");
	for (; n < (int) SPI_processed; n++)
		copy_gauge(&gauges[n], SPI_tuptable->vals[n], SPI_tuptable->tupdesc);
	SPI_finish();
	SpinLockAcquire(&db->mutex);
	memcpy(db->stats.gauges, gauges, sizeof(StatGauge) * n);
	db->stats.ngauges = n;
	db->stats.gauges_at = GetCurrentTimestamp();
	SpinLockRelease(&db->mutex);
	pfree(gauges);
	return true;
}
