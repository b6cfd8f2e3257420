/*
 * extension_update.c
 *	  Functions for the scripts of ALTER EXTENSION jobq UPDATE (src/sql/upgrade).
 */
#include "jobq.h"

#include "commands/extension.h"
#include "executor/spi.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(jobq_library_version);
PG_FUNCTION_INFO_V1(jobq_outside_extension);

/*
 * jobq_internal._library_version(): of the library that this process has
 * loaded
 */
Datum
jobq_library_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(JOBQ_VERSION));
}

/*
 * jobq_internal._outside_extension(statement), STRICT.  Runs a statement as if
 * no extension script ran.  A GRANT in a script becomes an initial privilege
 * of the extension, which pg_dump does not carry; grants to users' roles are
 * no part of the extension.  Rights are the caller's.
 */
Datum
jobq_outside_extension(PG_FUNCTION_ARGS)
{
	char	   *statement = text_to_cstring(PG_GETARG_TEXT_PP(0));
	bool		in_script = creating_extension;

	SPI_connect();
	PG_TRY();
	{
		creating_extension = false;
		SPI_execute(statement, false, 0);
	}
	PG_FINALLY();
	{
		creating_extension = in_script;
	}
	PG_END_TRY();
	SPI_finish();
	PG_RETURN_VOID();
}
