// A server of PostgreSQL's protocol that lets every role in by password, and refuses each statement
// of a request with the SQLSTATE that is the role's name.
import net from 'node:net';

function message(type, ...parts) {
  const body = Buffer.concat(parts.map((p) => (typeof p === 'string' ? Buffer.from(`${p}\0`) : p)));
  const head = Buffer.alloc(5);

  head.write(type);
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
}
const int32 = (n) => { const b = Buffer.alloc(4); b.writeInt32BE(n); return b; };
const ready = message('Z', Buffer.from('I'));
const refusal = (state) => message('E', 'SERROR', 'VERROR', `C${state}`, `Mrefused with ${state}`, Buffer.from([0]));
const letIn = Buffer.concat([message('R', int32(0)), message('S', 'server_version', '15.0'), message('S', 'client_encoding', 'UTF8'),
  message('S', 'standard_conforming_strings', 'on'), message('K', int32(1), int32(1)), ready]);

function serve(socket) {
  let data = Buffer.alloc(0);
  let state = null;

  function begin(body) {
    const code = body.readInt32BE(0);

    if (code !== 196608)                 // it asks for TLS or GSSAPI
      return socket.write('N');
    const words = body.subarray(4).toString().split('\0');
    state = words[words.indexOf('user') + 1];
    return socket.write(message('R', int32(3)));
  }
  function take(type) {
    if (type === 'p')
      socket.write(letIn);
    else if (type === 'Q')
      socket.write(Buffer.concat([message('C', 'SET'), ready]));
    else if (type === 'S')
      socket.write(Buffer.concat([refusal(state), ready]));
    else if (type === 'X')
      socket.end();
  }
  socket.on('error', () => {});
  socket.on('data', (part) => {
    data = Buffer.concat([data, part]);
    for (;;) {
      const at = state === null ? 0 : 1;

      if (data.length < at + 4 || data.length < at + data.readInt32BE(at))
        return;
      const end = at + data.readInt32BE(at);
      if (state === null)
        begin(data.subarray(4, end));
      else
        take(String.fromCharCode(data[0]));
      data = data.subarray(end);
    }
  });
}

export function fakePostgres(port) {
  return new Promise((resolve) => {
    const server = net.createServer(serve);

    server.listen(port, '127.0.0.1', () => resolve(server));
  });
}
