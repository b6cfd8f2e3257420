/*
 * screen.c
 *	  Frames of the screen, and the plain text of --once.
 *
 * A frame is the whole screen, written at once: each line is cleared behind
 * its end, so nothing flickers.  The lines that the sections do not get are
 * left out at their ends: each section first gets its titles and one row, then
 * one row each in turn.  The list of a section is moved so that the selected
 * job is in it.
 *
 * The selection is a job, not a line: it stays with the job when rows move.
 */
#include "top/screen.h"

#include <string.h>

#include "top/link.h"
#include "top/sections.h"

#define MAX_CHECKS	4			/* lines for failing checks */

#define BOLD	"\033[1m"
#define REVERSE "\033[7m"
#define PLAIN	"\033[m"

typedef struct Frame
{
	Buf		   *out;
	int			rows;			/* that are left */
	int			columns;
} Frame;

/* Adds a line: text is escaped here, unless it is clean. */
static void
put_line(Frame *frame, const char *attribute, const char *text)
{
	if (frame->rows <= 0)
		return;
	buf_str(frame->out, attribute);
	text_put(frame->out, text, frame->columns);
	if (*attribute)
		buf_str(frame->out, PLAIN);
	buf_str(frame->out, --frame->rows > 0 ? "\033[K\r\n" : "\033[K");
}

/* The row of the selected job in a section, -1: none. */
static int
selected_row(const Table *table, const View *view)
{
	for (int row = 0; row < table->n_rows; row++)
		if (*view->selected && strcmp(table->ids[row], view->selected) == 0)
			return row;
	return -1;
}

/* The rows of each section for so many lines. */
static void
share_lines(const Table *tables, int lines, int shown[N_SECTIONS])
{
	bool		more = true;

	for (int s = 0; s < N_SECTIONS; s++)
	{
		shown[s] = 0;
		lines -= 3;				/* title, titles of columns or note, space between */
	}
	while (more)
	{
		more = false;
		for (int s = 0; s < N_SECTIONS; s++)
			if (lines > 0 && shown[s] < tables[s].n_rows)
			{
				shown[s]++;
				lines--;
				more = true;
			}
	}
}

static void
put_section(Frame *frame, const Table *table, int shown, const View *view)
{
	int			widths[MAX_COLUMNS];
	int			selected = selected_row(table, view);
	int			first = selected >= shown ? selected - shown + 1 : 0;
	static Buf	line;

	put_line(frame, BOLD, table->title.s);
	if (table->n_rows == 0)
	{
		put_line(frame, "", table->note.s);
		return;
	}
	table_widths(table, frame->columns, widths);
	for (int row = -1; row < shown; row++)
	{
		int			at = row < 0 ? -1 : first + row;

		buf_clear(&line);
		table_put(&line, table, at, widths);
		put_line(frame, at >= 0 && at == selected ? REVERSE : "", line.s);
	}
}

static void
put_head(Frame *frame, const View *view)
{
	static Buf	line;
	static const char *const attributes[] = {"", REVERSE, REVERSE, REVERSE};

	buf_clear(&line);
	buf_printf(&line, "jobq-top  %s  %s", link_place(), view->state.s);
	put_line(frame, view->is_stale ? REVERSE : BOLD, line.s);
	buf_clear(&line);
	verdict_put(&line);
	put_line(frame, attributes[verdict_level()], line.s);
	for (int row = 0; row < MAX_CHECKS; row++)
	{
		buf_clear(&line);
		if (verdict_check_put(&line, row))
			put_line(frame, "", line.s);
	}
}

/* The last line of the screen. */
static void
put_foot(Frame *frame, const View *view)
{
	static Buf	line;

	while (frame->rows > 1)
		put_line(frame, "", "");
	buf_clear(&line);
	if (view->mode == MODE_INPUT)
		buf_printf(&line, "why, id of a job: %s_", view->input);
	else
		buf_str(&line, view->mode == MODE_WHY ? "Esc back  r ask again  w another job  q quit" :
				"q quit  w why  arrows select  / type an id  r refresh");
	put_line(frame, REVERSE, line.s);
}

static void
put_why(Frame *frame, const View *view)
{
	static Buf	text;
	char	   *rest;

	buf_clear(&text);
	why_put(&text, view->why);
	put_line(frame, "", "");
	for (char *line = strtok_r(text.s, "\n", &rest); line && frame->rows > 1; line = strtok_r(NULL, "\n", &rest))
		put_line(frame, "", line);
}

void
screen_draw(Buf *frame, View *view)
{
	Frame		f = {.out = frame, .rows = view->rows, .columns = view->columns};
	const Table *tables = sections_build();
	int			shown[N_SECTIONS];

	buf_str(frame, "\033[H");
	put_head(&f, view);
	if (view->mode == MODE_WHY)
		put_why(&f, view);
	else
	{
		share_lines(tables, f.rows - 1, shown);
		for (int s = 0; s < N_SECTIONS; s++)
		{
			if (f.rows > 1)
				put_line(&f, "", "");
			if (f.rows > 2 + shown[s])
				put_section(&f, &tables[s], shown[s], view);
		}
	}
	put_foot(&f, view);
}

void
screen_move(View *view, int by)
{
	const Table *tables = sections_build();
	const char *before = NULL;
	const char *pick = NULL;
	bool		found = false;

	/* the job before the selected one, or behind it; else the first one */
	for (int s = SECTION_RUNNING; s <= SECTION_WAITING; s++)
		for (int row = 0; row < tables[s].n_rows; row++)
		{
			const char *id = tables[s].ids[row];

			if (found && by > 0 && !pick)
				pick = id;
			if (strcmp(id, view->selected) == 0)
			{
				found = true;
				pick = by < 0 ? before : NULL;
			}
			before = id;
		}
	if (!found && before)
		pick = tables[SECTION_RUNNING].n_rows ? tables[SECTION_RUNNING].ids[0] : tables[SECTION_WAITING].ids[0];
	if (pick)
		strncpy(view->selected, pick, MAX_INPUT);
}

static void
plain_line(Buf *text, const Buf *line)
{
	text_put(text, line->s, -1);
	buf_str(text, "\n");
}

void
screen_plain(Buf *text)
{
	const Table *tables = sections_build();
	static Buf	line;

	verdict_put(&line);
	plain_line(text, &line);
	for (int row = 0; buf_clear(&line), verdict_check_put(&line, row); row++)
		plain_line(text, &line);
	for (int s = 0; s < N_SECTIONS; s++)
	{
		int			widths[MAX_COLUMNS];

		buf_str(text, "\n");
		plain_line(text, &tables[s].title);
		if (tables[s].n_rows == 0)
			plain_line(text, &tables[s].note);
		table_widths(&tables[s], -1, widths);
		for (int row = tables[s].n_rows > 0 ? -1 : 0; row < tables[s].n_rows; row++)
		{
			table_put(text, &tables[s], row, widths);
			buf_str(text, "\n");
		}
	}
}
