/*
 * home.h
 *	  The identity of a database, which its jobs store.
 */
#ifndef JOBQ_HOME_H
#define JOBQ_HOME_H

/*
 * Returns this database's home id; create: makes it when there is none, else
 * 0.
 */
extern int32 home_id(bool create);
/* True if the home row names this database; false after a restore. */
extern bool home_is_ours(int32 *id);

/* The checked columns of jobq.home: see table_shape.h. */
extern const struct Shape home_shape;

#endif
