/*
 * launcher.h
 *	  The process that keeps a dispatcher in every database that has the extension.
 */
#ifndef JOBQ_LAUNCHER_H
#define JOBQ_LAUNCHER_H

/* Called once, from _PG_init, when the library is preloaded. */
extern void launcher_register(void);

#endif
