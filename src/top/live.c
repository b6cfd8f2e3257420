/*
 * live.c
 *	  The screen that refreshes itself.
 *
 * One loop waits for keys, signals, the connection and the next refresh.  No
 * statement keeps a key waiting.  Without a connection the rows stay, and the
 * first line says since when they are stale and why.
 */
#include "top/live.h"

#include <string.h>

#include "top/feed.h"
#include "top/link.h"
#include "top/screen.h"
#include "top/terminal.h"

#define STALE_MS	10000		/* older rows are stale also without an error */

static View view;
static bool quit;

/* ---------- keys ---------- */

static void
ask_why(const char *id)
{
	strncpy(view.why, id, MAX_INPUT);
	view.mode = MODE_WHY;
	feed_why(view.why);
}

/* Reads the id of a job; w asks for the selected one at once. */
static void
begin_input(void)
{
	view.input[0] = '\0';
	view.mode = MODE_INPUT;
}

static void
input_key(int key)
{
	size_t		len = strlen(view.input);

	if (key == KEY_ESCAPE)
		view.mode = MODE_LIST;
	else if (key == KEY_ENTER && len > 0)
		ask_why(view.input);
	else if (key == KEY_ENTER)
		view.mode = MODE_LIST;
	else if (key == KEY_BACKSPACE && len > 0)
		view.input[len - 1] = '\0';
	else if (key > ' ' && key < 0x7f && len < MAX_INPUT)
	{
		view.input[len] = (char) key;
		view.input[len + 1] = '\0';
	}
}

static void
why_key(int key)
{
	if (key == KEY_ESCAPE || key == KEY_ENTER)
		view.mode = MODE_LIST;
	else if (key == 'q')
		quit = true;
	else if (key == 'r')
		feed_why(view.why);
	else if (key == 'w' || key == '/')
		begin_input();
}

static void
list_key(int key)
{
	if (key == 'q')
		quit = true;
	else if (key == 'r')
		feed_round(true);
	else if (key == KEY_UP || key == 'k')
		screen_move(&view, -1);
	else if (key == KEY_DOWN || key == 'j')
		screen_move(&view, 1);
	else if (key == '/' || (key == 'w' && !*view.selected))
		begin_input();
	else if (key == 'w')
		ask_why(view.selected);
}

/* Handles the keys that are there; true if there were any. */
static bool
handle_keys(void)
{
	bool		any = false;
	int			key;

	while ((key = terminal_key()) != KEY_NONE)
	{
		any = true;
		if (view.mode == MODE_INPUT)
			input_key(key);
		else if (view.mode == MODE_WHY)
			why_key(key);
		else
			list_key(key);
	}
	return any;
}

/* ---------- frames ---------- */

static void
draw(void)
{
	static Buf	frame;
	int64_t		age = feed_at() ? now_ms() - feed_at() : 0;
	const char *error = link_error();

	view.is_stale = error || age > STALE_MS;
	buf_clear(&view.state);
	if (!feed_at())
		buf_str(&view.state, error ? error : "reading ...");
	else if (view.is_stale)
		buf_printf(&view.state, "STALE, %d s old: %s", (int) (age / 1000), error ? error : "no answer");
	else
		buf_str(&view.state, "read-only");
	buf_clear(&frame);
	screen_draw(&frame, &view);
	terminal_write(&frame);
}

int
live_run(int64_t interval_ms)
{
	int64_t		refresh = 0;
	int64_t		redraw = 0;

	if (!terminal_open())
		return -1;
	terminal_size(&view.rows, &view.columns);
	while (!quit && !terminal_end())
	{
		int64_t		until;
		short		events;
		int			fd;
		int64_t		now = now_ms();
		bool		changed = handle_keys();

		if (now >= refresh)
		{
			feed_round(false);
			refresh = now + interval_ms;
		}
		link_step();
		changed |= feed_step();
		if (terminal_changed())
		{
			terminal_size(&view.rows, &view.columns);
			changed = true;
		}
		if (changed || now >= redraw)
		{
			draw();
			redraw = now + 1000;
		}
		fd = link_wait(&events, &until);
		until = until < refresh ? until : refresh;
		terminal_wait(fd, events, until < redraw ? until : redraw);
		terminal_suspend();
	}
	terminal_close();
	return terminal_end();
}
