/*
 * screen.h
 *	  Frames of the screen, and the plain text of --once.
 */
#ifndef JOBQ_TOP_SCREEN_H
#define JOBQ_TOP_SCREEN_H

#include "top/text.h"

#define MAX_INPUT 40

typedef enum Mode
{
	MODE_LIST, MODE_INPUT, MODE_WHY
} Mode;

typedef struct View
{
	int			rows;
	int			columns;
	Mode		mode;
	char		selected[MAX_INPUT + 1];	/* job id, "" without one */
	char		input[MAX_INPUT + 1];	/* what is typed */
	char		why[MAX_INPUT + 1]; /* the job of MODE_WHY */
	Buf			state;			/* "2 s old", "STALE ..." */
	bool		is_stale;
} View;

/* Appends a whole frame with its escape sequences. */
extern void screen_draw(Buf *frame, View *view);

/* Moves the selection by so many jobs. */
extern void screen_move(View *view, int by);

/* Appends everything as plain text. */
extern void screen_plain(Buf *text);

#endif
