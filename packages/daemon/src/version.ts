/** The release this is; package.json says the same, and a test compares. */
export const version = '0.1.0';
