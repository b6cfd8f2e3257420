// For a compiler without @types/node and @types/pg.
declare module 'node:*';
declare module 'pg';
declare const process: any;
declare const Buffer: any;
