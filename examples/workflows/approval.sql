-- An approval: a step waits for an event, which a manager sends, or does not.
\echo
\echo '== approval: an expense waits for the word of a manager'
CREATE SCHEMA office;
CREATE TABLE office.letters (run uuid, letter text);
CREATE FUNCTION office.check_expense(expense jsonb) RETURNS jsonb LANGUAGE sql AS $$
  SELECT jsonb_build_object('amount', expense -> 'amount', 'small', (expense ->> 'amount')::numeric <= 50)
$$;
CREATE FUNCTION office.write_letter(letter jsonb) RETURNS jsonb LANGUAGE sql AS $$
  INSERT INTO office.letters VALUES ((jobq.current_job()).workflow_id, concat_ws(' ', letter ->> 'text', letter ->> 'by'))
  RETURNING to_jsonb(office.letters.letter)
$$;
SELECT jobq.create_job_type('check_expense', 'office.check_expense(jsonb)'), jobq.create_job_type('letter', 'office.write_letter(jsonb)') \g /dev/null

-- Defines the workflow; an approval has that much time.
CREATE FUNCTION office.define(patience text) RETURNS int LANGUAGE sql AS $$
  SELECT jobq.create_workflow('expense', replace('[
    {"key": "check", "job_type": "check_expense", "payload": {"$": "$.input"}},
    {"key": "approval", "event": "decided", "timeout": "PATIENCE", "after": ["check"],
     "if": "$.tasks.check.result.small == false", "on_failure": "continue"},
    {"key": "pay", "job_type": "letter", "after": ["check", "approval"],
     "if": "$.tasks.approval.status == \"skipped\" || $.tasks.approval.result.approved == true",
     "payload": {"text": "paid, approved by", "by": {"$": "$.tasks.approval.result.by", "default": "rule"}}},
    {"key": "refuse", "job_type": "letter", "after": ["approval"], "if": "$.tasks.approval.result.approved == false",
     "payload": {"text": "refused by", "by": {"$": "$.tasks.approval.result.by"}}},
    {"key": "remind", "job_type": "letter", "after": ["approval"], "rule": "failed", "payload": {"text": "nothing heard of the manager"}}]',
    'PATIENCE', patience)::jsonb)
$$;
SELECT office.define('3 days') \g /dev/null
SELECT tell.graph('expense');

CREATE FUNCTION office.letter_is(run uuid, must_be text, tasks text) RETURNS text LANGUAGE sql AS $$
  SELECT format('   %s: %s', l, tell.equal(l, must_be, 'the letter')) FROM (SELECT string_agg(letter, ', ') FROM office.letters o WHERE o.run = letter_is.run) o(l)
   WHERE tell.equal(tell.tasks(run), tasks, 'the tasks of an expense') = 'yes'
$$;
CREATE ROLE manager;
SELECT jobq.grant_access('manager', 'enqueue', job_types => '{expense}') \g /dev/null

\echo
\echo '   20 are paid without a word'
SELECT jobq.enqueue('expense', '{"amount": 20}') AS run \gset
SELECT tell.ended(:'run', 'completed');
SELECT office.letter_is(:'run', 'paid, approved by rule', 'approval:skipped check:completed pay:completed refuse:skipped remind:skipped');

\echo '   500 wait; the role manager approves'
SELECT jobq.enqueue('expense', '{"amount": 500}') AS run \gset
SELECT tell.until_step(:'run', 'approval');
SET ROLE manager;
SELECT format('   jobq.send_event: %s, and once more: %s', jobq.send_event(:'run', 'decided', '{"approved": true, "by": "Ann"}'),
              jobq.send_event(:'run', 'decided', '{"approved": false, "by": "Ann"}'));
RESET ROLE;
SELECT tell.ended(:'run', 'completed');
SELECT office.letter_is(:'run', 'paid, approved by Ann', 'approval:completed check:completed pay:completed refuse:skipped remind:skipped');

\echo '   900 wait; the role manager refuses'
SELECT jobq.enqueue('expense', '{"amount": 900}') AS run \gset
SELECT tell.until_step(:'run', 'approval');
SET ROLE manager;
SELECT jobq.send_event(:'run', 'decided', '{"approved": false, "by": "Bob"}') \g /dev/null
RESET ROLE;
SELECT tell.ended(:'run', 'completed');
SELECT office.letter_is(:'run', 'refused by Bob', 'approval:completed check:completed pay:skipped refuse:completed remind:skipped');

\echo '   a new version of the workflow waits for one second: 700, and no word comes'
SELECT office.define('1 second') \g /dev/null
SELECT jobq.enqueue('expense', '{"amount": 700}') AS run \gset
SELECT tell.ended(:'run', 'completed');
SELECT office.letter_is(:'run', 'nothing heard of the manager', 'approval:error check:completed pay:skipped refuse:skipped remind:completed');
SELECT tell.equal(version || ' ' || (SELECT error_code FROM jobq.jobs WHERE workflow_id = :'run' AND task_key = 'approval'), '2 timeout', 'version and error code')
  FROM jobq.workflow_runs WHERE id = :'run' \g /dev/null
\echo '   the run:'
SELECT tell.graph(run => :'run');
