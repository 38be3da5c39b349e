/**
 * The forms in which a server could say a value back: as it is, in a URL, as JSON or HTML, in hex, and in base64, also where it is a part of
 * a longer text in base64.
 */
export function shapesOf(value: string): readonly string[] {
  const json = JSON.stringify(value).slice(1, -1);
  const url = encodeURIComponent(value);
  const hex = Buffer.from(value).toString('hex');
  const plain = [value, json, url, lowerEscapes(url), html(value), hex, hex.toUpperCase()];
  const base64 = [...inBase64(value), ...(json === value ? [] : inBase64(json))].flatMap((text) => {
    const escaped = encodeURIComponent(text);
    return [text, text.replaceAll('+', '-').replaceAll('/', '_'), escaped, lowerEscapes(escaped)];
  });
  return [...new Set([...plain, ...base64])];
}

/**
 * Three bytes are four letters, so a value has three forms in base64, by where it begins. Letters at its ends that also depend on what
 * stands beside it are left out.
 */
function inBase64(value: string): string[] {
  const bytes = Buffer.from(value);
  return [0, 2, 3].map((lettersBefore, bytesBefore) => {
    const whole = Math.floor(((bytesBefore + bytes.length) * 8) / 6);
    return Buffer.concat([Buffer.alloc(bytesBefore), bytes])
      .toString('base64')
      .slice(lettersBefore, whole);
  });
}

const lowerEscapes = (text: string): string => text.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());

const html = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
