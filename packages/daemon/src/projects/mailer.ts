import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import nodemailer, { type Transporter } from 'nodemailer';

export interface MailSettings {
  readonly host: string;
  readonly port: number;
  /** How the connection is encrypted. `none` is for a server on this machine. */
  readonly tls: 'starttls' | 'implicit' | 'none';
  readonly from: string;
  readonly user?: string | undefined;
  /** Read when a mail is sent. */
  readonly password_file?: string | undefined;
  /** An authority that its certificate is held to, besides the well-known ones. */
  readonly ca_file?: string | undefined;
}

export interface Mail {
  /** The same for each try, so that a server or a reader can tell a repetition. */
  readonly id: string;
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

const patienceMs = 10_000;

/** Sends mail through one server. Without its encryption nothing is sent, unless the settings say `none`. */
export class Mailer {
  readonly #settings: MailSettings;

  constructor(settings: MailSettings) {
    this.#settings = settings;
  }

  async send({ id, to, subject, text }: Mail): Promise<void> {
    const transport = this.#transport();
    try {
      await transport.sendMail({
        from: this.#settings.from,
        to,
        subject,
        text,
        messageId: `<${id}@coppice>`,
        headers: { 'Auto-Submitted': 'auto-generated' },
        disableFileAccess: true,
        disableUrlAccess: true,
      });
    } finally {
      transport.close();
    }
  }

  #transport(): Transporter {
    const { host, port, tls, user, password_file, ca_file } = this.#settings;
    return nodemailer.createTransport({
      host,
      port,
      secure: tls === 'implicit',
      requireTLS: tls === 'starttls',
      ignoreTLS: tls === 'none',
      ...(user === undefined
        ? {}
        : {
            auth: {
              user,
              pass: password_file === undefined ? '' : readFileSync(password_file, 'utf8').trim(),
            },
          }),
      ...(ca_file === undefined ? {} : { tls: { ca: [...rootCertificates, readFileSync(ca_file, 'utf8')] } }),
      connectionTimeout: patienceMs,
      greetingTimeout: patienceMs,
      socketTimeout: patienceMs,
    });
  }
}
