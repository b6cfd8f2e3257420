// The service: stores each reference and its job in one transaction.
import pg from 'pg';
import { enqueue } from 'jobq';

const types = { pdf: 'extract.pdf', png: 'extract.image', mp4: 'ingest.video' };
const db = new pg.Client();
await db.connect();
for (const url of process.argv.slice(2)) {
  await db.query('BEGIN');
  const { rows: [{ id }] } = await db.query('INSERT INTO refs (url) VALUES ($1) RETURNING id', [url]);
  await enqueue(db, types[url.split('.').pop()], { entity_type: 'ref', entity_id: Number(id), url });
  await db.query('COMMIT');
}
await db.end();
