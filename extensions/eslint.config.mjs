// What the linter checks beside the types: promises nobody awaits, hooks out of order, leftovers.
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["labextension/", "node_modules/", "src/types.ts"] },
  ...tseslint.configs.recommended,
  {
    files: ["src/**/*.{ts,tsx}", "tests/**/*.{ts,tsx}"],
    languageOptions: { parserOptions: { projectService: true } },
    plugins: { "react-hooks": reactHooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "@typescript-eslint/no-floating-promises": "error",
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "@typescript-eslint/consistent-type-imports": "error",
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-console": ["error", { allow: ["warn", "error"] }],
    },
  },
  {
    // A value that can be missing is looked at, not asserted to be there; a test may assert.
    files: ["src/**"],
    rules: { "@typescript-eslint/no-non-null-assertion": "error" },
  },
  {
    // Node's own runner collects a test when it is called; nobody awaits it.
    files: ["tests/**"],
    rules: { "@typescript-eslint/no-floating-promises": "off" },
  },
);
