/** Millionths of a US dollar as dollars, with as many digits as say something. */
export const formatMicros = (micros: number): string => {
  const dollars = micros / 1e6;
  return `$${micros !== 0 && dollars < 0.01 ? dollars.toFixed(6) : dollars.toFixed(2)}`;
};
