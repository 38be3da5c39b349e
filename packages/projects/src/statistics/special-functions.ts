/** Of Lanczos with g = 607/128: relative error below 1e-15 for positive arguments. */
const lanczos = [
  0.9999999999999971, 57.15623566586292, -59.59796035547549, 14.136097974741746, -0.4919138160976202,
  0.00003399464998481189, 0.00004652362892704858, -0.00009837447530487956, 0.0001580887032249125,
  -0.00021026444172410488, 0.00021743961811521265, -0.0001643181065367639, 0.00008441822398385275,
  -0.000026190838401581408, 0.0000036899182659531625,
] as const;

/** For positive arguments. */
function logGamma(x: number): number {
  let sum: number = lanczos[0];
  for (let index = 1; index < lanczos.length; index += 1) sum += lanczos[index]! / (x + index);
  const t = x + 607 / 128 + 0.5;
  return (x + 0.5) * Math.log(t) - t + Math.log((Math.sqrt(2 * Math.PI) * sum) / x);
}

export const logBeta = (a: number, b: number): number => logGamma(a) + logGamma(b) - logGamma(a + b);

const tiny = 1e-300;
const epsilon = 1e-16;
const mostSteps = 10_000;

/** The continued fraction of the incomplete beta function, by the method of Lentz. */
function betaFraction(x: number, a: number, b: number): number {
  let c = 1;
  let d = 1 / nonZero(1 - ((a + b) * x) / (a + 1));
  let value = d;
  for (let m = 1; m <= mostSteps; m += 1) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonZero(1 + even * d);
    c = nonZero(1 + even / c);
    value *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonZero(1 + odd * d);
    c = nonZero(1 + odd / c);
    value *= d * c;
    if (Math.abs(d * c - 1) < epsilon) break;
  }
  return value;
}

const nonZero = (value: number): number => (Math.abs(value) < tiny ? tiny : value);

/** The regularised incomplete beta function: the chance that a Beta(a, b) is at most x. */
export function betaCdf(x: number, a: number, b: number): number {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const front = Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta(a, b));
  return x < (a + 1) / (a + b + 2)
    ? (front * betaFraction(x, a, b)) / a
    : 1 - (front * betaFraction(1 - x, b, a)) / b;
}

/** The upper tail of the standard normal distribution, exact to the last digits also far out. */
export function normalTail(z: number): number {
  if (z < 0) return 1 - normalTail(-z);
  const x = (z * z) / 2;
  if (x === 0) return 0.5;
  return 0.5 * (x < 1.5 ? 1 - gammaSeries(x) : gammaFraction(x));
}

/** Lower incomplete gamma with a = 1/2, regularised. */
function gammaSeries(x: number): number {
  let term = 2;
  let sum = term;
  for (let n = 1; n < mostSteps; n += 1) {
    term *= x / (n + 0.5);
    sum += term;
    if (term < sum * epsilon) break;
  }
  return (sum * Math.exp(-x) * Math.sqrt(x)) / Math.sqrt(Math.PI);
}

/** Upper incomplete gamma with a = 1/2, regularised. */
function gammaFraction(x: number): number {
  let b = x + 0.5;
  let c = 1 / tiny;
  let d = 1 / b;
  let value = d;
  for (let n = 1; n < mostSteps; n += 1) {
    const an = -n * (n - 0.5);
    b += 2;
    d = 1 / nonZero(an * d + b);
    c = nonZero(b + an / c);
    value *= d * c;
    if (Math.abs(d * c - 1) < epsilon) break;
  }
  return (value * Math.exp(-x) * Math.sqrt(x)) / Math.sqrt(Math.PI);
}

/** Where a falling function passes that value. */
function solve(falling: (x: number) => number, value: number, from: number, to: number): number {
  let [low, high] = [from, to];
  for (let step = 0; step < 200 && low < high; step += 1) {
    const middle = (low + high) / 2;
    if (middle === low || middle === high) break;
    if (falling(middle) > value) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** The value that a standard normal exceeds with that chance. */
export const normalUpper = (chance: number): number => solve(normalTail, chance, -40, 40);

/** The chance that Student's t exceeds `t`. */
export function studentTail(t: number, df: number): number {
  const half = betaCdf(df / (df + t * t), df / 2, 0.5) / 2;
  return t >= 0 ? half : 1 - half;
}

/** The value that Student's t exceeds with that chance. */
export const studentUpper = (chance: number, df: number): number =>
  solve((t) => studentTail(t, df), chance, -1e6, 1e6);
