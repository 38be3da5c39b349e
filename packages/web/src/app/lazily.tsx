import { signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';

/** A component whose code is loaded when it is shown first: what is not seen at once costs nothing at once. */
export const lazily = (load: () => Promise<ComponentType>): ComponentType<{ isShown: boolean }> => {
  const loaded = signal<ComponentType | undefined>(undefined);
  let isLoading = false;
  return ({ isShown }) => {
    useEffect(() => {
      if (!isShown || isLoading) return;
      isLoading = true;
      load().then(
        (component) => {
          loaded.value = component;
        },
        () => {
          isLoading = false;
        },
      );
    }, [isShown]);
    const Component = loaded.value;
    return isShown && Component !== undefined ? <Component /> : null;
  };
};
