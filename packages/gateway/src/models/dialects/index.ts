import type { Dialect } from '../dialect.ts';
import { anthropic } from './anthropic.ts';
import { gemini } from './gemini.ts';
import { openaiChat } from './openai-chat.ts';
import { openaiResponses } from './openai-responses.ts';

export const dialects: readonly Dialect[] = [anthropic, openaiResponses, openaiChat, gemini];
