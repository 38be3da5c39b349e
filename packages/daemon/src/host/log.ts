/** The part of pino that services use. Never a secret, an environment value or a command line in it. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
